"""Where webhooks of a test are: an HTTP server in a thread that answers as it is told."""

import http.server
import json
import threading
from contextlib import contextmanager


class Target:
    """`answers` are statuses, or "hang", "drip", "close"; the last one stays. `requests` are what came."""

    def __init__(self, answers):
        self.answers, self.requests, self.ended = list(answers), [], threading.Event()
        self.came = threading.Condition()

    def next(self, headers, body):
        with self.came:
            self.requests.append((dict(headers), body))
            self.came.notify_all()
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def wait(self, count):
        with self.came:
            assert self.came.wait_for(lambda: len(self.requests) >= count, timeout=60), self.requests
            return self.requests[:count]

    def prices(self):
        with self.came:
            bodies = [json.loads(body)["deliveries"] for _, body in self.requests]
        return [one["event"]["price"] for body in bodies for one in body]


@contextmanager
def target(*answers):
    told = Target(answers or [200])

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = told.next(self.headers, body)
            if answer == "hang":
                told.ended.wait(60)
            elif answer == "drip":
                self.send_response(200)
                self.send_header("Content-Length", "100000")
                self.end_headers()
                while not told.ended.wait(0.05):
                    try:
                        self.wfile.write(b"x")
                    except OSError:
                        break
            elif answer != "close":
                self.send_response(answer)
                self.send_header("Content-Length", "7")
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(b"private")
                return
            self.close_connection = True

        def log_message(self, *given):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield told
    finally:
        told.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
