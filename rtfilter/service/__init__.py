"""The server behind ``rtfilter serve``; see `rtfilter.service.pipeline` for the way of an event."""

from rtfilter.basics.extras import needed

with needed("service", "the server"):
    import sqlalchemy as sqlalchemy
    import starlette as starlette
    import structlog as structlog
    import uvicorn as uvicorn
