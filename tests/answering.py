"""A server on loopback for a block, which answers each request as a function says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def answering(answer: Callable[[str, str, bytes], tuple[int, bytes]]) -> Iterator[str]:
    """Serve for a block, and yield the base URL.

    `answer` takes a request's method, path and body, and returns the status and the body of its answer.
    """

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            given = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, body = answer(self.command, self.path, given)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = reply  # noqa: N815  # the names that the base class looks for

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
