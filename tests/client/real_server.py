"""``rtfilter serve`` as a process, which may be killed and started again."""

import json
import os
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(HOME)}


class RealServer:
    """Serves ``price`` (float) and ``symbol`` (str) from a folder."""

    def __init__(self, folder):
        self.folder, self.port = folder, 0
        (folder / "ticks.json").write_text(json.dumps({"symbol": "str", "price": "float"}))
        self.start()

    def start(self):
        schema = ["--schema", str(self.folder / "ticks.json")]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rtfilter", "serve", "--data", str(self.folder / "data")),
                *(*schema, "--port", str(self.port)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        while " at http://" not in (line := self.process.stdout.readline()):
            assert line, "the server has ended"
        self.port = int(line.rpartition(":")[2])
        self.url = f"ws://127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
