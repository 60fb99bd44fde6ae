"""The server behind ``rtfilter serve``; see `rtfilter.service.pipeline` for the way of an event."""

from rtfilter.extras import needed

with needed("service", "the server"):
    import fastapi as fastapi
    import pydantic_settings as pydantic_settings
    import sqlalchemy as sqlalchemy
    import structlog as structlog
    import uvicorn as uvicorn
