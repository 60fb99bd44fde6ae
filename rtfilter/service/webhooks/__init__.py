"""Deliveries sent to addresses of users: signed, sent again until they arrive, parked where they do not."""

from rtfilter.service.webhooks.sending import Sender
from rtfilter.service.webhooks.server_webhooks import Webhooks, WebhookState

__all__ = ["Sender", "WebhookState", "Webhooks"]
