"""The doors of a real server, for tests that say the same at each."""

import base64
import json
import urllib.error
import urllib.request
from contextlib import ExitStack

from real_server import Framed
from websockets.sync.client import connect

from rtfilter.service.doors.frames import ClientDirective, write


class Http:
    """Says directives at the doors of HTTP."""

    def __init__(self, server, user="ann"):
        self._url, self._user = f"http://localhost:{server.port}", user

    def ask(self, directive, mark="", filter="default", **body):
        """The answer, or the error as a text."""
        if directive == "UNSUBSCRIBE":
            return self.send("DELETE", f"/subscriptions/{body['subscription']}")
        path = {"SUBSCRIBE": "subscriptions", "PUBLISH": "events", "MATCH": "match", "EXPLAIN": "explain"}[
            directive
        ]
        kind, key = "application/json", body.pop("key", None)
        if "events" in body:
            kind, text = "application/x-ndjson", "\n".join(map(json.dumps, body["events"]))
        else:
            text = json.dumps(body if directive == "EXPLAIN" else body.get("event", body))
        headers = {"Content-Type": kind} if key is None else {"Content-Type": kind, "Idempotency-Key": key}
        return self.send("POST", f"/filters/{filter}/{path}", (mark + text).encode(), headers)

    def send(self, method, path, body=None, headers=None):
        headers = {
            "Authorization": "Basic " + base64.b64encode(f"{self._user}:".encode()).decode(),
            **(headers or {}),
        }
        try:
            request = urllib.request.Request(self._url + path, body, headers, method=method)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            with error:
                return json.load(error)["detail"]


class Socket:
    """Says directives in a session over WebSocket."""

    def __init__(self, server, user="ann"):
        self._open = ExitStack()
        self._socket = self._open.enter_context(connect(server.url + "/session"))
        self.ask("CONNECT", user=user)

    def ask(self, directive, mark="", **body):
        self._socket.send(mark + json.dumps({"directive": directive, "tag": 1, **body}))
        answer = self.hear()
        return answer if answer["directive"] != "ERROR" else answer["error"]

    def hear(self):
        return json.loads(self._socket.recv(60))

    def close(self):
        self._open.close()


class Tcp:
    """Says directives in a session over TCP."""

    def __init__(self, server, user="ann"):
        self._peer = Framed(server)
        self.hear = self._peer._hear
        self.ask("CONNECT", user=user)

    def ask(self, directive, mark="", **body):
        self._peer._socket.sendall(write(ClientDirective[directive], (mark + json.dumps(body)).encode()))
        answer = self.hear()
        return answer if answer["directive"] != "ERROR" else answer["error"]

    def close(self):
        self._peer._socket.close()
