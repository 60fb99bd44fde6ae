"""``rtfilter nats`` that also writes to a file what the engine has stored: ``nats_traced.py FILE ...``."""

import os
import sys

from rtfilter.cli import main
from rtfilter.nats.publisher import Publisher

_on_answer = Publisher._on_answer


async def _traced(self, answer):
    token = answer.subject.rpartition(".")[2]
    sent = self._waiting.get(token)
    await _on_answer(self, answer)
    if sent is not None and token not in self._waiting:
        line = f"{sent.headers['Nats-Msg-Id']} {answer.data.decode()}\n"
        os.write(_file, line.encode())


if __name__ == "__main__":
    _file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    Publisher._on_answer = _traced
    sys.exit(main(sys.argv[2:]))
