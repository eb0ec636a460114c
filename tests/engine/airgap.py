"""A machine without the internet, inside this one: a network namespace that has loopback alone.

It has an engine of its own. A package mirror listens on one of its own addresses, and is the one
thing that reaches out: it fetches from the real archive what it is asked for, as a site's mirror
does, through a socket that was opened inside while the mirror itself runs outside.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UPSTREAM = "http://deb.debian.org"
# The engine's bridge inside: an address that its containers reach, and that leads nowhere else.
BRIDGE = "172.31.254.1"
MIRROR_PORT = 3142
AS_ROOT = () if os.geteuid() == 0 else ("sudo", "-n", "-E")
_DEADLINE = 60.0
# Opens the mirror's socket where it runs and hands it over on its standard input.
_OPEN = f"""
import socket
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("0.0.0.0", {MIRROR_PORT}))
listening.listen(64)
socket.send_fds(socket.socket(fileno=0), [b"x"], [listening.fileno()])
"""


@dataclass(frozen=True)
class Inside:
    """What runs inside, and how to get there."""

    process: int
    engine: str
    mirror: Mirror

    @property
    def enter(self) -> tuple[str, ...]:
        """Return the words that start a program inside."""
        namespace = f"--net=/proc/{self.process}/ns/net"
        return (*AS_ROOT, "nsenter", namespace, "--", "env", f"DOCKER_HOST={self.engine}")


@dataclass
class Mirror:
    """What the mirror has, and what it was asked for."""

    folder: Path
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{BRIDGE}:{MIRROR_PORT}"

    def content(self, path: str) -> bytes | None:
        """Return a file of the archive, fetched when it is first asked for."""
        self.asked.append(path)
        kept = self.folder / path.strip("/").replace("/", "%")
        if not kept.is_file():
            answer = httpx.get(UPSTREAM + path, follow_redirects=True, timeout=60)
            if answer.status_code != httpx.codes.OK:
                return None
            kept.with_suffix(".part").write_bytes(answer.content)
            kept.with_suffix(".part").replace(kept)
        return kept.read_bytes()


@contextmanager
def airgap(folder: Path) -> Iterator[Inside]:
    """Start namespace, engine and mirror; all of it ends with the block."""
    folder.mkdir(parents=True)
    mirror = Mirror(folder / "mirror")
    mirror.folder.mkdir()
    run = Path(tempfile.mkdtemp(prefix="airgap-"))  # names of sockets are 107 bytes at most
    try:
        with _engine(folder, run) as (process, engine):
            inside = Inside(process, engine, mirror)
            with _served(inside):
                yield inside
    finally:
        _wait_for(lambda: removed(folder) and removed(run), "the end of its folders")


@contextmanager
def _engine(folder: Path, run: Path) -> Iterator[tuple[int, str]]:
    """Start a Docker engine in namespaces of its own: when its first process ends, all end."""
    engine = f"unix://{run}/docker.sock"
    config = {
        "data-root": f"{folder}/data",
        "exec-root": f"{run}/exec",
        "pidfile": f"{run}/docker.pid",
        "hosts": [engine],
        "bip": f"{BRIDGE}/24",
        "features": {"containerd-snapshotter": True},
    }
    (folder / "daemon.json").write_text(json.dumps(config), "utf-8")
    # The shell before the engine takes care of orphans, as the first process of a namespace must,
    # and passes on that it is to stop.
    script = (
        f"ip link set lo up; dockerd --config-file {folder}/daemon.json >{folder}/docker.log 2>&1 &"
        f' trap "kill $!" TERM; echo up > {folder}/up; wait $!; wait $!'
    )
    argv = (
        *AS_ROOT,
        *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("sh", "-c", script),
    )
    holder = subprocess.Popen(argv)
    _wait_for(lambda: (folder / "up").exists(), "the namespace")
    process = _first_inside(holder.pid)
    try:
        _wait_for(lambda: _answers(engine, holder, folder), "the engine inside")
        yield process, engine
    finally:
        _stop(holder, process)


def _stop(holder: subprocess.Popen[bytes], process: int) -> None:
    """End the engine, and with it every process inside."""
    try:
        subprocess.run([*AS_ROOT, "kill", "-TERM", str(process)], check=False)
        holder.wait(timeout=30)
    except subprocess.TimeoutExpired:
        subprocess.run([*AS_ROOT, "kill", "-KILL", str(process)], check=False)
        holder.wait(timeout=30)


def _first_inside(pid: int) -> int:
    """Return the first descendant of ``pid`` that is in another network namespace than we are."""
    ours = Path("/proc/self/ns/net").stat().st_ino
    todo = [pid]
    while todo:
        at = todo.pop()
        found = subprocess.run(
            [*AS_ROOT, "stat", "-L", "-c", "%i", f"/proc/{at}/ns/net"],
            capture_output=True,
            text=True,
            check=True,
        )
        if int(found.stdout) != ours and Path(f"/proc/{at}/comm").read_text() == "sh\n":
            return at
        children = Path(f"/proc/{at}/task/{at}/children").read_text()
        todo += [int(child) for child in children.split()]
    raise AssertionError("nothing runs in the namespace")


def _answers(engine: str, holder: subprocess.Popen[bytes], folder: Path) -> bool:
    assert holder.poll() is None, (folder / "docker.log").read_text("utf-8")
    argv = [*AS_ROOT, "docker", "--host", engine, "info"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def removed(folder: Path) -> bool:
    """Remove what runs inside have written, as root if need be, and tell whether it is gone."""
    subprocess.run([*AS_ROOT, "rm", "-rf", str(folder)], capture_output=True, check=False)
    return not folder.exists()


@contextmanager
def _served(inside: Inside) -> Iterator[None]:
    ours, theirs = socket.socketpair()
    opening = [*inside.enter, sys.executable, "-c", _OPEN]
    subprocess.run(opening, stdin=theirs.fileno(), check=True, timeout=30)
    _, handles, _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    theirs.close()
    mirror = inside.mirror

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            content = mirror.content(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=handles[0])
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.1,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _DEADLINE
    while not condition():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.1)
