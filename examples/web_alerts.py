"""Alerts in a web app: clients subscribe and publish events over TCP, one JSON object a line.

What all clients publish while a batch is matched is the next batch. A long one is matched in a thread beside
the event loop, and an alert leaves as soon as it is known.
"""

import asyncio
import json

from rtfilter import AsyncFilter, EventFilter, Schema

rules = EventFilter(Schema({"symbol": str, "price": float}))
alerts = AsyncFilter(rules)
clients = {}  # by the id of their subscription


def send(id, message):
    if id in clients:
        clients[id].write(json.dumps(message).encode() + b"\n")


async def serve(reader, writer):
    own = []
    async for line in reader:
        try:
            message = json.loads(line)
            if "subscribe" in message:
                own.append(await asyncio.to_thread(rules.subscribe, message["subscribe"]))
                clients[own[-1]] = writer
                send(own[-1], {"subscribed": own[-1]})
            else:
                for id in (await alerts.match(message["event"])).tolist():
                    send(id, {"alert": message["event"], "subscription": id})
        except (ValueError, KeyError, TypeError) as error:
            writer.write(json.dumps({"error": str(error)}).encode() + b"\n")
    for id in own:
        del clients[id]
    await asyncio.to_thread(rules.unsubscribe_many, own)
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)  # any free port
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b'{"subscribe": "symbol = \'ACME\' AND price < 10"}\n')
    print(await reader.readline())
    for price in (12.5, 9.5, 11.0):
        writer.write(b'{"event": {"symbol": "ACME", "price": %f}}\n' % price)
    print(await reader.readline())
    writer.write_eof()
    await reader.read()  # until the server has closed the connection
    server.close()
    writer.close()
    await alerts.aclose()


if __name__ == "__main__":
    asyncio.run(main())
