"""Alerts in a web app: clients subscribe and publish events over TCP, one JSON object a line.

Events that arrive while a batch is matched are the next batch. A thread beside the event loop matches, and an
alert leaves as soon as it is known.
"""

import asyncio
import json

from rtfilter import EventFilter, Schema

rules = EventFilter(Schema({"symbol": str, "price": float}))
clients = {}  # by the id of their subscription
arrived = asyncio.Queue()


def send(id, message):
    if id in clients:
        clients[id].write(json.dumps(message).encode() + b"\n")


async def match_forever(loop):
    def match(batch):
        for row, ids, _ in rules.stream(batch):
            for id in ids.tolist():
                loop.call_soon_threadsafe(send, id, {"alert": batch[row], "subscription": id})

    while True:
        batch = [await arrived.get()]
        while not arrived.empty():
            batch.append(arrived.get_nowait())
        await loop.run_in_executor(None, match, batch)


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
                rules.schema.read(message["event"])  # refuses a bad event here, not amid its batch
                arrived.put_nowait(message["event"])
        except (ValueError, KeyError, TypeError) as error:
            writer.write(json.dumps({"error": str(error)}).encode() + b"\n")
    for id in own:
        del clients[id]
    await asyncio.to_thread(rules.unsubscribe_many, own)
    writer.close()


async def main():
    matching = asyncio.create_task(match_forever(asyncio.get_running_loop()))
    server = await asyncio.start_server(serve, "127.0.0.1", 0)  # any free port
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b'{"subscribe": "symbol = \'ACME\' AND price < 10"}\n')
    print(await reader.readline())
    for price in (12.5, 9.5, 11.0):
        writer.write(b'{"event": {"symbol": "ACME", "price": %f}}\n' % price)
    print(await reader.readline())
    writer.write_eof()
    await reader.read()  # until the server has closed the connection
    matching.cancel()
    server.close()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main())
