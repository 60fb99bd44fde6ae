"""The page of the clients: its programs get what they wait for."""

import asyncio
import base64
import re
import time
from pathlib import Path

import pytest

from rtfilter.service.access.passwords import Passwords
from rtfilter.store.database import engine
from rtfilter.store.user_store import Users
from service.running import running

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.slow
def test_its_programs_get_what_they_wait_for(tmp_path, capsys):
    database = engine(f"sqlite:///{tmp_path}/log.sqlite")
    Users(database).add("ann", Passwords().hash("ann's secret"), ["admin"])
    database.dispose()
    coroutines, _, futures = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    said = ""

    def wait_for(text):
        nonlocal said
        end = time.monotonic() + 120
        while text not in said:
            assert time.monotonic() < end, said
            said += capsys.readouterr().out
            time.sleep(0.01)

    async def program(main):
        task = asyncio.create_task(main())
        await asyncio.to_thread(wait_for, "{'price': 7.5}")
        task.cancel()
        await asyncio.wait([task])

    with running(tmp_path) as server:
        url = f"ws://127.0.0.1:{server.port}"
        names: dict = {}
        exec(coroutines.replace("ws://127.0.0.1:8080", url), names)
        asyncio.run(program(names["main"]))
        exec(futures.replace('secret")', f'secret", "{url}")'), names)
        client = names["listen"]()
        header = "Basic " + base64.b64encode(b"ann:ann's secret").decode()
        server.ask("POST", "/filters/default/events", {"price": 9}, user=None, Authorization=header)
        wait_for("{'price': 9}")
        client.disconnect().result(120)
