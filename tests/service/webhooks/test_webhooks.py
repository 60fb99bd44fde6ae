"""Webhooks: what arrives, what comes again, where they may be."""

import asyncio
import re
import time
from ipaddress import ip_address
from pathlib import Path

import pytest

from lengths import long_but
from rtfilter.client.webhooks import SignatureError, verify
from rtfilter.service.service_errors import NotAuthenticatedError
from rtfilter.service.webhooks import Sender, Webhooks, targets
from rtfilter.service.webhooks.signing import ServerKey
from rtfilter.store.database import engine
from rtfilter.store.webhook_table import WebhookTable
from service.running import running
from service.served import ANN, served
from service.webhooks.asking import hooked, publish, shown, until
from service.webhooks.target import target


def documented():
    """What the page says that verifies."""
    page = (Path(__file__).parents[3] / "docs/webhooks.md").read_text()
    found = {}
    exec(re.search("```python\n(.*?)```", page, re.DOTALL)[1], found)
    return found["verify"]


@pytest.mark.slow
def test_what_arrived_is_signed_and_acknowledged(tmp_path):
    with target() as told, running(tmp_path, webhook_private=True) as server:
        secret = hooked(server, told.url)
        publish(server, 1)
        ((headers, body),) = told.wait(1)
        verify(headers, body, secret)
        lower = {name.lower(): value for name, value in headers.items()}
        documented()(lower, body, secret)
        with pytest.raises(ValueError, match="wrong"):
            documented()(lower, body + b" ", secret)
        with pytest.raises(SignatureError, match="wrong"):
            verify(headers, body + b" ", secret)
        with pytest.raises(SignatureError, match="too long ago"):
            verify(headers, body, secret, now=time.time() + 301)
        until(lambda: not server.ask("GET", "/deliveries").body["deliveries"])
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file


@pytest.mark.slow
@pytest.mark.parametrize("answer", long_but([500, 302, "close"], (500, "close")))
def test_what_failed_comes_again_with_the_same_id(tmp_path, answer):
    with target(answer, 200) as told, running(tmp_path, webhook_private=True) as server:
        hooked(server, told.url)
        publish(server, 1)
        (first, body), (second, again) = told.wait(2)
        assert (first["webhook-id"], body) == (second["webhook-id"], again)


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "tries"), [(410, 12), (500, 1)])
def test_parked_stays_so_after_a_restart_and_resumes(tmp_path, answer, tries):
    with target(answer) as told:
        given = {"webhook_private": True, "webhook_tries": tries}
        with running(tmp_path, **given) as server:
            hooked(server, told.url)
            publish(server, 1)
            until(lambda: shown(server)["state"] == "parked")
        with running(tmp_path, **given) as server:
            found = shown(server)
            assert (found["state"], found["reason"][:15]) == ("parked", f"it answered {answer}")
            told.answers = [200]
            assert server.ask("POST", "/webhook/resume").status == 200
            until(lambda: not server.ask("GET", "/deliveries").body["deliveries"])


@pytest.mark.slow
def test_a_target_that_hangs_delays_no_other(tmp_path):
    with target("hang") as slow, target() as quick, running(tmp_path, webhook_private=True) as server:
        hooked(server, slow.url, "bob")
        hooked(server, quick.url)
        publish(server, 1)
        slow.wait(1)
        publish(server, 2)
        until(lambda: set(quick.prices()) == {1, 2})
        assert len(slow.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["hang", "drip"])
def test_an_answer_has_to_end_in_time(answer):
    async def run(url):
        sender = Sender(True, timeout=0.5)
        found = await sender.lane(quick=True).post(url, {}, b"{}")
        await sender.close()
        return found

    with target(answer) as told:
        assert "did not answer" in asyncio.run(run(told.url)).error


@pytest.mark.slow
def test_a_lost_key_parks_until_there_is_a_new_secret(tmp_path):
    with target() as told:
        with running(tmp_path, webhook_private=True) as server:
            hooked(server, told.url)
        (tmp_path / "webhooks.key").unlink()
        with running(tmp_path, webhook_private=True) as server:
            assert "new secret" in shown(server)["reason"]
            assert server.ask("POST", "/webhook/resume").status == 409
            assert server.ask("POST", "/webhook/secret").status == 200
            assert server.ask("POST", "/webhook/resume").body["state"] == "active"


PRIVATE = [
    "127.0.0.1 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 240.0.0.1 "
    "255.255.255.255 168.63.129.16 ::1 :: fe80::1 fc00::1 ff02::1 ::ffff:127.0.0.1 2002:7f00:1:: "
    "64:ff9b::7f00:1 fec0::1 64:ff9b:1::1"
][0].split()


PUBLIC = ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"]


def test_an_address_that_is_not_public_is_known():
    found = [one for one in (*PRIVATE, *PUBLIC) if targets.public(ip_address(one))]
    assert found == PUBLIC


def test_a_webhook_may_not_be_there():
    async def resolve(host, port):
        return ["127.0.0.1"]

    async def allowed(url):
        try:
            await targets.addresses(*targets.check(url, private=False), resolve, private=False)
        except targets.TargetError:
            return False
        return True

    async def run():
        return [url for url in NOWHERE if await allowed(url)]

    assert asyncio.run(run()) == []


@pytest.mark.parametrize("url", ["http://8.8.8.8/", "https://localhost/"])
def test_what_a_setting_allows_names_it(url):
    async def resolve(host, port):
        return ["127.0.0.1"]

    async def run():
        await targets.addresses(*targets.check(url, private=False), resolve, private=False)

    with pytest.raises(targets.TargetError, match=r"start the server with --webhook-private$"):
        asyncio.run(run())


NOWHERE = [
    "https://127.1/",
    "https://localhost/",
    "http://8.8.8.8/",
    "https://a:b@8.8.8.8/",
    "ftp://8.8.8.8",
    "https://8.8.8.8/#x",
    "https://[::1]/",
    "https://",
]


@pytest.mark.slow
def test_a_private_webhook_is_refused_when_it_is_made(tmp_path):
    with running(tmp_path) as server:
        assert server.ask("PUT", "/webhook", {"url": "https://localhost/"}).status == 422


@pytest.mark.parametrize(
    "ask",
    [
        lambda webhooks: webhooks.put(ANN, "https://ann.example/"),
        lambda webhooks: webhooks.renew(ANN),
        lambda webhooks: webhooks.resume(ANN),
        lambda webhooks: webhooks.remove(ANN),
    ],
    ids=["put", "renew", "resume", "remove"],
)
def test_who_waits_and_may_not_stay_changes_no_webhook(tmp_path, ask):
    table = WebhookTable(engine(f"sqlite:///{tmp_path}/webhooks.sqlite"))

    async def script(pipeline):
        webhooks = Webhooks(table, ServerKey(tmp_path), pipeline, Sender(private=True))
        await webhooks.start()
        await webhooks.put(ANN, "https://another.example/")
        before = table.read()
        async with webhooks._changing:
            asked = asyncio.create_task(ask(webhooks))
            while not webhooks._changing._waiters:
                await asyncio.sleep(0)
            pipeline.users.still = lambda who: False
        with pytest.raises(NotAuthenticatedError):
            await asked
        await webhooks.stop()
        return table.read() == before

    assert served(tmp_path, script) == [True]


def test_a_name_is_looked_at_again_for_each_connection():
    answers = [["8.8.8.8"], ["8.8.8.8", "127.0.0.1"]]

    async def resolve(host, port):
        return answers.pop(0)

    async def run(url):
        sender = Sender(False, resolve)
        lane = sender.lane(quick=True)
        await targets.addresses("hook.example", 443, lane.resolve, private=False)
        found = await lane.post(url, {}, b"{}")
        await sender.close()
        return found

    with target() as told:
        found = asyncio.run(run(told.url.replace("127.0.0.1", "hook.example")))
        assert "not a public one" in found.error
        assert not told.requests
