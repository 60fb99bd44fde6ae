"""The log of the server for people and machines, on standard error: lines of JSON where it is no terminal.

No secrets are in it: no bodies, no headers, no query strings.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog

LEVELS: Final = {
    "sqlalchemy.engine": logging.WARNING,
    "uvicorn.error": logging.WARNING,
    "numba": logging.WARNING,  # at the level DEBUG, it logs each byte code that it compiles
    "asyncio": logging.INFO,
}
"""Libraries that log less than the rest."""


def configure(level: str = "info") -> None:
    """Write the log of this process, from a level on, to standard error in one form.

    Lines about a request or a session have its id.
    """
    console = sys.stderr.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor]
    if console:
        last = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, least in LEVELS.items():
        logging.getLogger(name).setLevel(max(least, root.level))
