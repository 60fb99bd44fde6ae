"""A server of S3's protocol on this machine, for tests: moto, which keeps everything in memory."""

import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress

from experiments.ports import free_port


@contextmanager
def served(bucket="bucket", patience=60.0):
    """Start a server, and yield a function that makes the URI of a path in a bucket. Stop it at the end."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + patience
        while True:
            assert process.poll() is None, "moto ended; does `python -m moto.server` run?"
            assert time.monotonic() < limit, "moto did not start"
            with suppress(OSError):
                urllib.request.urlopen(urllib.request.Request(f"{url}/{bucket}", method="PUT")).close()
                break
            time.sleep(0.05)
        options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        yield lambda path: f"s3://key:secret@{bucket}/{path}?{options}"
    finally:
        process.terminate()
        process.wait()
