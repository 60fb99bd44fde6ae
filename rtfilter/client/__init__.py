"""Clients of a server, ``rtfilter serve``: they subscribe, publish, and receive deliveries.

>>> import rtfilter.client
>>> async def main():
...     async with rtfilter.client.connect("ws://127.0.0.1:8080", user="ann", password="...") as client:
...         await client.subscribe("price > 5")
...         async for delivery in client:
...             print(delivery.event)

`connect` is for programs with asyncio, `connect_plain` for programs without, and `get_client` returns
futures. All of them reconnect when the connection is lost.
"""

from rtfilter.basics.extras import needed

with needed("client", "the client"):
    import websockets as websockets

from rtfilter.client.client import Arrived, Client, DeliveredEvent, Delivery, connect
from rtfilter.client.client_errors import (
    ClientError,
    ClosedError,
    ProtocolError,
    RefusedError,
    UnreachableError,
)
from rtfilter.client.plain import ClientApi, PlainClient, PlainDelivery, connect_plain, get_client
from rtfilter.client.protocol import Reasons, ServerSubscription

__all__ = [
    "Arrived",
    "Client",
    "ClientApi",
    "ClientError",
    "ClosedError",
    "DeliveredEvent",
    "Delivery",
    "PlainClient",
    "PlainDelivery",
    "ProtocolError",
    "Reasons",
    "RefusedError",
    "ServerSubscription",
    "UnreachableError",
    "connect",
    "connect_plain",
    "get_client",
]
