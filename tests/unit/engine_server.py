"""An engine's API in this process, over real HTTP: what a test says, as slowly as it says."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION = {"Version": "29.0.0", "ApiVersion": "1.52", "MinAPIVersion": "1.24"}


@dataclass
class FakeEngine:
    """Answers by the end of the path: a status and a JSON value, after some seconds."""

    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    address: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: FakeEngine

    def handle_one(self) -> None:
        path = self.path.partition("?")[0]
        body = self._read()
        self.engine.calls.append((self.command, path))
        for end, (status, value) in {"/version": (200, _VERSION), **self.engine.answers}.items():
            if path.endswith(end):
                self.engine.bodies[end] = body
                time.sleep(self.engine.seconds.get(end, 0))
                self._reply(status, value)
                return
        self._reply(404, {"message": f"no answer for {path}"})

    do_GET = do_POST = do_DELETE = handle_one  # noqa: N815

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size + 2)[:size])
        self.rfile.readline()
        return b"".join(pieces)

    def _reply(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode() if value is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay silent."""


@contextmanager
def serving_engine(engine: FakeEngine) -> Iterator[FakeEngine]:
    """Serve ``engine`` on a free loopback port; its ``address`` is for DOCKER_HOST."""
    handler = type("BoundHandler", (_Handler,), {"engine": engine})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    engine.address = f"tcp://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
