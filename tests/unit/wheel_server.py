"""Wheels of a few kB, and a server that has them: PEP 503, PEP 691, a flat page, the files."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LOCAL = "rocm6.2.4"
TAG = "cp313-cp313-linux_x86_64"


def wheel(
    name: str,
    version: str,
    tag: str = "py3-none-any",
    requires: tuple[str, ...] = (),
    files: Mapping[str, str] | None = None,
) -> tuple[str, bytes]:
    """Return the file name and the content of a wheel whose module has its version."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
    about = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n"
    content = {
        **(files or {f"{name}/__init__.py": f"__version__ = {version!r}\n"}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": about,
    }
    lines = [f"{path},{_hash(text)},{len(text)}\n" for path, text in content.items()]
    content[f"{info}/RECORD"] = "".join(lines) + f"{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in content.items():
            archive.writestr(zipfile.ZipInfo(path, (2025, 1, 1, 0, 0, 0)), text)
    return f"{name}-{version}-{tag}.whl", packed.getvalue()


def _hash(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def torch_wheels(hip: str = "6.2.41134") -> dict[str, bytes]:
    """Return stand-ins for torch and its companions, as the index of one ROCm has them."""
    version = f"2.7.1+{LOCAL}"
    package = {
        "torch/__init__.py": f"from torch import version\n\n__version__ = {version!r}\n",
        "torch/version.py": f"__version__ = {version!r}\nhip = {hip!r}\ncuda = None\n",
    }
    needs = ("pytorch-triton-rocm==3.3.1", "filelock")
    return dict(
        [
            wheel("torch", version, TAG, needs, package),
            wheel("torchvision", f"0.22.1+{LOCAL}", TAG, (f"torch==2.7.1+{LOCAL}",)),
            wheel("torchaudio", f"2.7.1+{LOCAL}", TAG, (f"torch==2.7.1+{LOCAL}",)),
            wheel("pytorch_triton_rocm", "3.3.1", TAG),
        ]
    )


def other_wheels() -> dict[str, bytes]:
    """Return what the general index has."""
    return dict([wheel("filelock", "3.1"), wheel("pip", "25.0")])


class WheelServer:
    """Indexes below ``/<name>/simple/`` and ``/<name>/flat/``, files below ``/<name>/files/``.

    ``before`` may answer a request in the server's place.
    """

    def __init__(self, indexes: Mapping[str, dict[str, bytes]]) -> None:
        self.indexes = indexes
        self.form = "html"
        self.hashes = True
        self.yanked: set[str] = set()
        self.uploaded: str | None = None
        self.calls: list[str] = []
        self.before: Callable[[Handler], bool] = lambda _: False
        self.url = ""

    def answer(self, handler: Handler) -> None:
        self.calls.append(handler.path)
        if self.before(handler):
            return
        name, _, rest = unquote(urlsplit(handler.path).path).strip("/").partition("/")
        files = self.indexes.get(name, {})
        kind, _, what = rest.partition("/")
        if kind == "files" and what in files:
            handler.send_part(files[what])
        elif kind == "flat" and not what:
            handler.reply(200, self._html(name, sorted(files)), "text/html")
        elif kind == "simple" and not what:
            projects = sorted({_project(file) for file in files})
            links = "".join(f'<a href="{one}/">{one}</a>\n' for one in projects)
            handler.reply(200, links.encode(), "text/html")
        elif kind == "simple" and (found := [f for f in sorted(files) if _project(f) == what]):
            if self.form == "json":
                body = self._json(name, what, found)
                handler.reply(200, body, "application/vnd.pypi.simple.v1+json")
            else:
                handler.reply(200, self._html(name, found), "text/html")
        else:
            handler.reply(404)

    def _html(self, index: str, files: list[str]) -> bytes:
        lines = []
        for file in files:
            digest = hashlib.sha256(self.indexes[index][file]).hexdigest()
            fragment = f"#sha256={digest}" if self.hashes else ""
            yanked = ' data-yanked="broken"' if file in self.yanked else ""
            href = f"/{index}/files/{quote(file)}{fragment}"
            lines.append(f'<a href="{href}"{yanked}>{file}</a><br>\n')
        return "".join(["<!DOCTYPE html><html><body>\n", *lines, "</body></html>\n"]).encode()

    def _json(self, index: str, project: str, files: list[str]) -> bytes:
        entries = []
        for file in files:
            content = self.indexes[index][file]
            hashes = {"sha256": hashlib.sha256(content).hexdigest()} if self.hashes else {}
            entry: dict[str, object] = {
                "filename": file,
                "url": f"/{index}/files/{quote(file)}",
                "hashes": hashes,
                "size": len(content),
                "yanked": "broken" if file in self.yanked else False,
            }
            if self.uploaded:
                entry["upload-time"] = self.uploaded
            entries.append(entry)
        versions = sorted({file.split("-")[1] for file in files})
        meta = {"api-version": "1.1"}
        page = {"meta": meta, "name": project, "versions": versions, "files": entries}
        return json.dumps(page).encode()


def _project(file: str) -> str:
    return file.split("-")[0].replace("_", "-").lower()


class Handler(BaseHTTPRequestHandler):
    """Answers on one connection."""

    protocol_version = "HTTP/1.1"
    server_state: WheelServer

    def do_GET(self) -> None:
        self.server_state.answer(self)

    def do_HEAD(self) -> None:
        self.server_state.answer(self)

    def send_part(self, content: bytes) -> None:
        """Send a file, or the part of it that was asked for."""
        asked = self.headers.get("Range", "")
        if not asked.startswith("bytes=") or asked == "bytes=0-":
            self.reply(200, content, "application/octet-stream", Accept_Ranges="bytes")
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        end = int(last) if last else len(content) - 1
        start = int(first) if first else len(content) - int(last)
        end = end if first else len(content) - 1
        if start >= len(content):
            self.reply(416)
            return
        span = f"bytes {start}-{min(end, len(content) - 1)}/{len(content)}"
        part = content[start : end + 1]
        self.reply(206, part, "application/octet-stream", Content_Range=span)

    def reply(self, status: int, body: bytes = b"", kind: str = "", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving_wheels(indexes: Mapping[str, dict[str, bytes]]) -> Iterator[WheelServer]:
    """Serve ``indexes`` on loopback until the block ends."""
    state = WheelServer(indexes)
    handler = type("OurHandler", (Handler,), {"server_state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
