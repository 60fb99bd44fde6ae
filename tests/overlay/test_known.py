"""When a member takes its subscriptions for known by all who must know them."""

from rtfilter import Schema
from rtfilter.overlay.broker_names import BrokerPlace, member
from rtfilter.overlay.router import Router
from rtfilter.overlay.routing_messages import Confirm

CLUSTER = frozenset({"lima", "oslo", "paris"})


def test_a_member_asks_each_designated_broker_to_confirm_its_subscriptions():
    router = Router("lima", 1, {"default": Schema({"a": float})}, grace=1.0)
    router.place(BrokerPlace("cluster", "lima", "oslo", CLUSTER), 0.0)
    id, _ = router.subscribe("users", "default", "a > 5", 0.0)
    assert not router.is_known_everywhere(id)
    router.receive(Confirm(id), member("oslo"), 0.0)
    assert router.is_known_everywhere(id)
    announced = router.announced
    router.place(BrokerPlace("cluster", "lima", "paris", CLUSTER), 1.0)
    assert router.announced == announced + 1
    assert not router.is_known_everywhere(id)
    router.receive(Confirm(id), member("paris"), 1.0)
    assert router.is_known_everywhere(id)
