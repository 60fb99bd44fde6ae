"""Where webhooks of a test are: an HTTP server in a thread that answers as it is told."""

import http.server
import json
import threading
from contextlib import contextmanager

ENDLESS = 2**28
"""Bytes of an answer that nobody should read."""


class Target:
    """`answers` are statuses, alone or with a Retry-After, or "hang", "drip", "close", "endless".

    The last answer stays. `requests` are what came, `paths` where to, and `taken` the bodies that were
    answered with 200. What hangs or drips ends when `freed` is set, "endless" with a connection that breaks.
    """

    def __init__(self, answers):
        self.answers, self.requests, self.paths, self.taken = list(answers), [], [], []
        self.freed, self.broken = threading.Event(), threading.Event()
        self.came = threading.Condition()

    def next(self, path, headers, body):
        with self.came:
            self.requests.append((dict(headers), body))
            self.paths.append(path)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if answer == 200:
                self.taken.append(body)
            self.came.notify_all()
            return answer

    def free(self):
        """Take all from now on; what hangs ends."""
        with self.came:
            self.answers = [200]
        self.freed.set()

    def wait(self, count):
        with self.came:
            assert self.came.wait_for(lambda: len(self.requests) >= count, timeout=60), self.requests
            return self.requests[:count]

    def bodies(self):
        with self.came:
            return [json.loads(body) for _, body in self.requests]

    def prices(self, bodies=None):
        """Of all events that came, or of those in the bodies given."""
        found = self.bodies() if bodies is None else map(json.loads, list(bodies))
        return [one["event"]["price"] for body in found for one in body["deliveries"]]


@contextmanager
def target(*answers, tls=None):
    told = Target(answers or [200])

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = told.next(self.path, self.headers, body)
            answer, wait = answer if isinstance(answer, tuple) else (answer, None)
            if answer == "hang":
                told.freed.wait()
            elif answer == "drip":
                self.send_response(200)
                self.send_header("Content-Length", "100000")
                self.end_headers()
                while not told.freed.wait(0.05):
                    try:
                        self.wfile.write(b"x")
                    except OSError:
                        break
            elif answer == "endless":
                self.send_response(200)
                self.send_header("Content-Length", str(ENDLESS))
                self.end_headers()
                try:
                    for _ in range(ENDLESS // 2**16):
                        self.wfile.write(bytes(2**16))
                except OSError:
                    told.broken.set()
            elif answer != "close":
                self.send_response(answer)
                self.send_header("Content-Length", "7")
                self.send_header("Location", "/elsewhere")
                if wait is not None:
                    self.send_header("Retry-After", wait)
                self.end_headers()
                self.wfile.write(b"private")
                return
            self.close_connection = True

        def log_message(self, *given):
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128

        def handle_error(self, *given):  # a peer that is killed
            pass

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.port = server.server_address[1]
    told.url = f"http://127.0.0.1:{told.port}/hook"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield told
    finally:
        told.freed.set()
        server.shutdown()
        server.server_close()
        thread.join()
