"""Adapter for Apptainer: the program of this host, or the one of the tools image.

Both get the same words. The tools image is started through the container engine without extra
privileges: user namespaces and squashfuse are enough, as they are for a user of a cluster.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from builder.engines.process import Command
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from builder.engines.process import Completed, Runner, Stream

_SHORT_SECONDS = 60.0
_BUILD_SECONDS = 6 * 3600.0
_SQUASH = "--mksquashfs-args"
# An engine's default filters refuse the namespaces and mounts that Apptainer makes for its caller.
_UNCONFINED = ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined")


@dataclass(frozen=True, slots=True)
class User:
    """Who runs a SIF: numbers, because neither host nor image needs to know a name."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of Apptainer.

    Attributes:
        words: what follows the program's name.
        timeout: seconds.
        environ: variables of the caller, beside ``PATH``; nothing else is handed on.
        read: paths that the call reads; they keep their names.
        write: folders that it writes to.
        devices: device nodes of the host that it may open.
        user: who it runs as, where that can be chosen (the tools image).
        full: folders that are full file systems, which only the tools image can give.
        cwd: folder to run in.
    """

    words: tuple[str, ...]
    timeout: float
    environ: Mapping[str, str]
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    devices: tuple[str, ...] = ()
    user: User | None = None
    full: tuple[Path, ...] = ()
    cwd: Path | None = None


class Place(Protocol):
    """Where the program runs."""

    @property
    def name(self) -> str:
        """Name the place for people."""
        ...

    def command(self, call: Invocation) -> Command:
        """Return the process that does the call there."""
        ...


@dataclass(frozen=True, slots=True)
class HostPlace:
    """The host's own Apptainer; the caller's user runs it, whatever a call asks for."""

    program: Path
    path: str

    @property
    def name(self) -> str:
        """Name the program."""
        return str(self.program)

    def command(self, call: Invocation) -> Command:
        """Return the plain call with the environment that was asked for and no other."""
        environ = {"PATH": self.path, **call.environ}
        words = (str(self.program), *call.words)
        return Command(words, timeout=call.timeout, cwd=call.cwd, env=environ)


@dataclass(frozen=True, slots=True)
class ToolsPlace:
    """The tools image, started through the container engine.

    Attributes:
        image: its name in the engine.
        caller: who runs it where the call does not say.
        labels: what marks its containers, ``key=value``, so that a later run finds a killed one's.
        fuse: whether this machine has ``/dev/fuse``; without it a SIF is unpacked for each call.
    """

    image: str
    caller: User
    labels: tuple[str, ...] = ()
    fuse: bool = True

    @property
    def name(self) -> str:
        """Name the image."""
        return f"the tools image {self.image}"

    def command(self, call: Invocation) -> Command:
        """Return the call through ``docker run``: paths keep their names, no network is given."""
        user = call.user or self.caller
        read = dict.fromkeys(path for path in call.read if not _below(path, call.write))
        words = (
            *("docker", "run", "--rm", "--init", "--network=none"),
            *(f"--security-opt={option}" for option in _UNCONFINED),
            *(("--device=/dev/fuse",) if self.fuse else ()),
            *(f"--device={device}" for device in call.devices),
            *(f"--label={label}" for label in self.labels),
            *(f"--volume={path}:{path}:ro" for path in read),
            *(f"--volume={path}:{path}" for path in dict.fromkeys(call.write)),
            *(f"--tmpfs={path}:size=4k,nr_inodes=1,mode=1777" for path in call.full),
            *(f"--env={name}={value}" for name, value in sorted(call.environ.items())),
            *((f"--workdir={call.cwd}",) if call.cwd else ()),
            self.image,
            *("as-user", str(user.uid), str(user.gid), ",".join(map(str, user.groups))),
            "apptainer",
            *call.words,
        )
        return Command(words, timeout=call.timeout)


def _below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


@dataclass(frozen=True, slots=True)
class Squash:
    """How a SIF's file system is made: cores, and bytes of memory for ``mksquashfs``."""

    processors: int
    memory: int

    @property
    def words(self) -> str:
        """Return the arguments of ``mksquashfs``.

        zstd at level 3 in blocks of 256 KiB takes a tenth of the time of gzip's default, and the
        larger blocks make the file smaller than gzip's (494 MB to 502, and 515 without them).
        All files belong to root, so that the tree is the same whoever converts.
        """
        memory = max(64, self.memory >> 20)
        return (
            "-comp zstd -Xcompression-level 3 -b 256K -all-root"
            f" -processors {self.processors} -mem {memory}M"
        )


class Apptainer:
    """Calls one Apptainer."""

    def __init__(self, runner: Runner, place: Place) -> None:
        self._runner = runner
        self.place = place

    def version(self) -> str:
        """Return what the program says its version is.

        Raises:
            CouldNotError: ``APPTAINER_UNUSABLE``.
        """
        done = self.run(Invocation(("--version",), _SHORT_SECONDS, {}))
        words = done.stdout.split()
        if done.returncode != 0 or not words:
            raise CouldNotError(
                Problem(
                    code="APPTAINER_UNUSABLE",
                    what=f"{self.place.name} does not tell its version (exit {done.returncode})",
                    why=done.tail(5) or None,
                )
            )
        return words[-1]

    def can_tune(self) -> bool:
        """Tell whether ``build`` passes arguments on to ``mksquashfs``; older ones do not."""
        done = self.run(Invocation(("build", "--help"), _SHORT_SECONDS, {}))
        return _SQUASH in done.stdout

    def build(
        self,
        layout: Path,
        sif: Path,
        *,
        temporary: Path,
        squash: Squash | None,
        read: tuple[Path, ...] = (),
        on_line: Callable[[Stream, str], None] | None = None,
    ) -> Completed:
        """Convert the one image of an OCI layout to ``sif`` and return how that ended.

        Args:
            layout: folder with one image.
            sif: file to write; its folder exists.
            temporary: folder with room for the unpacked image.
            squash: how the file system is made; Apptainer's own defaults where it is None.
            read: further paths that the layout refers to.
            on_line: hears what Apptainer says.
        """
        tuned = (_SQUASH, squash.words) if squash else ()
        folder = str(temporary)
        call = Invocation(
            # Apptainer writes this word into a label: the name alone, not a path of this machine.
            ("build", "--disable-cache", "--force", *tuned, str(sif), f"oci:{layout.name}"),
            _BUILD_SECONDS,
            # Two folders and the one of its helpers: each has filled a /tmp that nobody thought of.
            {
                "APPTAINER_TMPDIR": folder,
                "APPTAINER_CACHEDIR": folder,
                "TMPDIR": folder,
                "HOME": folder,
            },
            read=(layout, *read),
            write=(temporary, sif.parent),
            cwd=layout.parent,
        )
        return self.run(call, on_line)

    def labels(self, sif: Path) -> dict[str, str]:
        """Return the labels of a SIF.

        Raises:
            CouldNotError: ``SIF_UNREADABLE``.
        """
        call = Invocation(
            ("inspect", "--json", "--labels", str(sif)), _SHORT_SECONDS, {}, read=(sif,)
        )
        done = self.run(call)
        try:
            found = json.loads(done.stdout)["data"]["attributes"]["labels"]
            return {str(key): str(value) for key, value in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CouldNotError(
                Problem(
                    code="SIF_UNREADABLE",
                    what=f"{self.place.name} reads no labels in it (exit {done.returncode})",
                    where=str(sif),
                    why=done.tail(5) or None,
                    fix="check that the file is a SIF, and whole",
                )
            ) from error

    def run(
        self, call: Invocation, on_line: Callable[[Stream, str], None] | None = None
    ) -> Completed:
        """Do one call; errors as for :meth:`ProcessRunner.run`."""
        return self._runner.run(self.place.command(call), on_line)


def find_apptainer(path: str | None) -> HostPlace | None:
    """Return the Apptainer on ``path``, a search path, or None."""
    found = shutil.which("apptainer", path=path)
    return None if found is None else HostPlace(Path(found), path or "")
