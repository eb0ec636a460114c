"""Where a tool runs that not every host has: the host's own program, or the tools image's.

Both get the same words. The tools image is started through the container engine, without network
and without extra privileges.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from builder.engines.process import Command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class User:
    """Who a tool runs as: numbers, because neither host nor image needs to know a name."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of a tool.

    Attributes:
        words: what follows the program's name.
        timeout: seconds.
        environ: variables that the tool gets, beside ``PATH``.
        handed_on: names of variables of the caller that it gets, too: their values stand in no
            argument and in no log.
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
    handed_on: tuple[str, ...] = ()
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
    """A program of the host; the caller's user runs it, whatever a call asks for.

    Attributes:
        program: the file.
        caller: the caller's environment, of which the program gets ``PATH`` and what a call names.
    """

    program: Path
    caller: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """Name the program."""
        return str(self.program)

    def command(self, call: Invocation) -> Command:
        """Return the plain call with the environment that was asked for and no other."""
        handed_on = ("PATH", *call.handed_on)
        environ = {name: self.caller[name] for name in handed_on if name in self.caller}
        words = (str(self.program), *call.words)
        return Command(words, timeout=call.timeout, cwd=call.cwd, env={**environ, **call.environ})


@dataclass(frozen=True, slots=True)
class ToolsPlace:
    """A program of the tools image, started through the container engine.

    Attributes:
        image: its name in the engine.
        program: the program's name in there.
        caller: who runs it where the call does not say.
        options: what ``docker run`` gets for this program.
        labels: what marks its containers, ``key=value``, so that a later run finds a killed one's.
    """

    image: str
    program: str
    caller: User
    options: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

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
            *self.options,
            *(f"--device={device}" for device in call.devices),
            *(f"--label={label}" for label in self.labels),
            *(f"--volume={path}:{path}:ro" for path in read),
            *(f"--volume={path}:{path}" for path in dict.fromkeys(call.write)),
            *(f"--tmpfs={path}:size=4k,nr_inodes=1,mode=1777" for path in call.full),
            *(f"--env={name}={value}" for name, value in sorted(call.environ.items())),
            *(f"--env={name}" for name in call.handed_on),
            *((f"--workdir={call.cwd}",) if call.cwd else ()),
            self.image,
            *("as-user", str(user.uid), str(user.gid), ",".join(map(str, user.groups))),
            self.program,
            *call.words,
        )
        return Command(words, timeout=call.timeout)


def find_program(name: str, caller: Mapping[str, str]) -> HostPlace | None:
    """Return the program of that name on the ``PATH`` of ``caller``, or None."""
    found = shutil.which(name, path=caller.get("PATH", ""))
    return None if found is None else HostPlace(Path(found), caller)


def _below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
