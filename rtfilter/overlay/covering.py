"""What a broker has told a neighbour: which subscriptions went over a link, and which were suppressed."""

from __future__ import annotations

from collections.abc import Iterable

from rtfilter.overlay.names import SubscriptionId
from rtfilter.overlay.routing_messages import Subscribe, Subscription, Unsubscribe
from rtfilter.overlay.sending import Message


class Told:
    """Tells a neighbour every subscription."""

    def __init__(self) -> None:
        self._sent: dict[SubscriptionId, Subscription] = {}

    def add(self, subscription: Subscription) -> list[Message]:
        """The neighbour must know a subscription: return what it is told. A known one changes nothing."""
        if subscription.id in self._sent:
            return []
        self._sent[subscription.id] = subscription
        return [Subscribe(subscription)]

    def remove(self, id: SubscriptionId) -> list[Message]:
        """It must not know it any longer."""
        return [] if self._sent.pop(id, None) is None else [Unsubscribe(id)]

    def sent(self) -> Iterable[Subscription]:
        """What it was told, and holds."""
        return self._sent.values()

    @property
    def suppressed(self) -> int:
        """Number of subscriptions that it need not be told, because others cover them."""
        return 0
