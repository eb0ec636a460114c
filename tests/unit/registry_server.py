"""A small registry in this process, over real HTTP, that can be told to fail."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class FakeRegistry:
    """State of the registry; ``before`` may answer a request in the registry's place."""

    def __init__(self, *, referrers_api: bool = False) -> None:
        self.referrers_api = referrers_api
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.uploads: dict[str, bytearray] = {}
        self.calls: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.before: Callable[[Handler], bool] = lambda _: False
        self.page_size = 100
        self.host = ""

    def count(self, method: str, part: str = "") -> int:
        return sum(m == method and part in path for m, path in self.calls)

    def store(self, repository: str, reference: str, media_type: str, body: bytes) -> None:
        for name in (reference, digest_of(body)):
            self.manifests[repository, name] = (media_type, body)

    def referrers_of(self, repository: str, digest: str) -> list[dict[str, Any]]:
        found = {}
        for (repo, name), (media_type, body) in self.manifests.items():
            value = json.loads(body)
            if repo != repository or value.get("subject", {}).get("digest") != digest:
                continue
            if name.startswith("sha256:"):
                found[name] = {
                    "mediaType": media_type,
                    "digest": name,
                    "size": len(body),
                    "artifactType": value.get("artifactType"),
                    "annotations": value.get("annotations", {}),
                }
        return list(found.values())


class Handler(BaseHTTPRequestHandler):
    """Speaks the distribution API on one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    registry: FakeRegistry

    def handle_one(self) -> None:
        split = urlsplit(self.path)
        self.route, self.query = split.path, parse_qs(split.query)
        self.registry.calls.append((self.command, self.path))
        self.registry.headers.append(dict(self.headers))
        if self.registry.before(self):
            return
        _, _, rest = self.route.partition("/v2/")
        for kind in ("blobs/uploads", "blobs", "manifests", "referrers", "tags"):
            repository, found, name = rest.partition(f"/{kind}/")
            if found:
                getattr(self, kind.replace("/", "_"))(repository, name)
                return
        self.reply(200 if self.route == "/v2/" else 404)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = handle_one  # noqa: N815

    def read(self, most: int | None = None) -> bytes:
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length if most is None else min(most, length))

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def drop(self) -> None:
        """Break the connection without a word."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def blobs(self, repository: str, digest: str) -> None:
        content = self.registry.blobs.get((repository, digest))
        if content is None:
            self.reply(404)
        else:
            self.reply(200, content, Docker_Content_Digest=digest)

    def blobs_uploads(self, repository: str, session: str) -> None:
        state = self.registry.uploads
        if self.command == "POST":
            mount, origin = self.query.get("mount", [""])[0], self.query.get("from", [""])[0]
            if (origin, mount) in self.registry.blobs:
                self.registry.blobs[repository, mount] = self.registry.blobs[origin, mount]
                return self.reply(201, Docker_Content_Digest=mount)
            session = str(len(state))
            state[session] = bytearray()
            return self.reply(202, Location=f"/v2/{repository}/blobs/uploads/{session}?_state=s")
        if session not in state:
            self.read()
            return self.reply(404, b'{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN"}]}')
        if self.command != "GET":
            state[session] += self.read()
        where = f"/v2/{repository}/blobs/uploads/{session}?_state=t"
        if self.command == "PUT":
            digest, content = self.query["digest"][0], bytes(state.pop(session))
            if digest_of(content) != digest:
                return self.reply(400, b'{"errors":[{"code":"DIGEST_INVALID"}]}')
            self.registry.blobs[repository, digest] = content
            return self.reply(201, Docker_Content_Digest=digest)
        end = max(len(state[session]) - 1, 0)
        return self.reply(204 if self.command == "GET" else 202, Location=where, Range=f"0-{end}")

    def manifests(self, repository: str, reference: str) -> None:
        if self.command == "PUT":
            body = self.read()
            self.registry.store(repository, reference, self.headers["Content-Type"], body)
            extra = {}
            subject = json.loads(body).get("subject")
            if subject and self.registry.referrers_api:
                extra["OCI_Subject"] = subject["digest"]
            return self.reply(201, Docker_Content_Digest=digest_of(body), **extra)
        found = self.registry.manifests.get((repository, reference))
        if found is not None and self.command == "DELETE":
            del self.registry.manifests[repository, reference]
            return self.reply(202)
        if found is None:
            return self.reply(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        media_type, body = found
        return self.reply(200, body, Docker_Content_Digest=digest_of(body), Content_Type=media_type)

    def referrers(self, repository: str, digest: str) -> None:
        if not self.registry.referrers_api:
            return self.reply(404, b"404 page not found")
        listed = self.registry.referrers_of(repository, digest)
        page, link = self.page(listed)
        index = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": page,
        }
        return self.reply(
            200,
            json.dumps(index).encode(),
            Content_Type="application/vnd.oci.image.index.v1+json",
            **link,
        )

    def tags(self, repository: str, _list: str) -> None:
        names = [n for r, n in self.registry.manifests if r == repository and ":" not in n]
        if not names:
            return self.reply(404, b'{"errors":[{"code":"NAME_UNKNOWN"}]}')
        page, link = self.page(sorted(names))
        return self.reply(200, json.dumps({"name": repository, "tags": page}).encode(), **link)

    def page(self, values: list[Any]) -> tuple[list[Any], dict[str, str]]:
        start = int(self.query.get("last", ["0"])[0])
        end = start + self.registry.page_size
        link = f'<{self.route}?last={end}>; rel="next"'
        return values[start:end], {"Link": link} if end < len(values) else {}

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay silent."""


@contextmanager
def serving(registry: FakeRegistry) -> Iterator[FakeRegistry]:
    """Serve ``registry`` on a free loopback port; its ``host`` names it."""
    handler = type("BoundHandler", (Handler,), {"registry": registry})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    registry.host = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
