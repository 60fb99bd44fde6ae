"""The doors of webhooks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rtfilter.service.doors import shared
from rtfilter.service.doors.shared import Who, needs
from rtfilter.service.roles import Role
from rtfilter.service.webhooks import Webhooks


class WebhookWanted(BaseModel):
    """The URL to which deliveries are to be sent."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"url": "https://ann.example/deliveries"}]}
    )
    url: str = Field(max_length=2000, description="https://host/path")


class WebhookShown(BaseModel):
    """A webhook; times in seconds since 1970."""

    user: str
    url: str
    state: str = Field(description="active, waiting (for the next try), parked, or stopped (by roles).")
    since: float = Field(description="When it was made, or parked.")
    reason: str | None = Field(description="Why it is parked.")
    failures: int = Field(description="In a row.")
    last_status: int | None = Field(description="Of the last answer.")
    last_error: str | None = Field(description="What was wrong with the last request.")
    next_try: float | None


class WebhookMade(WebhookShown):
    """A webhook with a new secret, which is not shown again."""

    secret: str = Field(description="What requests are signed with.")


def _webhooks(request: Request) -> Webhooks:
    found: Webhooks = request.app.state.webhooks
    return found


Served = Annotated[Webhooks, Depends(_webhooks)]
User = Annotated[str | None, Query(description="Of another user; for admins.")]


@needs(Role.SUBSCRIBER)
async def put_webhook(wanted: WebhookWanted, who: Who, webhooks: Served) -> WebhookMade:
    """Send deliveries to a URL from now on, with a new secret. Replaces an earlier webhook."""
    return WebhookMade(**(await webhooks.put(who, wanted.url))._asdict())


async def show_webhook(who: Who, webhooks: Served, user: User = None) -> WebhookShown:
    """Show the user's webhook."""
    return WebhookShown(**webhooks.show(who, user)._asdict())


async def remove_webhook(who: Who, webhooks: Served, user: User = None) -> None:
    """Remove the webhook. Deliveries stay."""
    await webhooks.remove(who, user)


@needs(Role.SUBSCRIBER)
async def renew_secret(who: Who, webhooks: Served) -> WebhookMade:
    """Sign with a new secret from now on."""
    return WebhookMade(**(await webhooks.renew(who))._asdict())


@needs(Role.SUBSCRIBER)
async def resume_webhook(who: Who, webhooks: Served) -> WebhookShown:
    """Send again to a webhook that is parked; where it waits for the next try, try at once."""
    return WebhookShown(**(await webhooks.resume(who))._asdict())


def doors() -> APIRouter:
    """Return the routes of these doors."""
    router = shared.router()
    add = router.add_api_route
    add("/webhook", put_webhook, methods=["PUT"])
    add("/webhook", show_webhook, methods=["GET"])
    add("/webhook", remove_webhook, methods=["DELETE"], status_code=204, response_class=Response)
    add("/webhook/secret", renew_secret, methods=["POST"])
    add("/webhook/resume", resume_webhook, methods=["POST"])
    return router
