"""Adapter for Apptainer: conversion to a SIF, its labels, and programs in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.engines.places import Invocation
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.engines.places import Place
    from builder.engines.process import Completed, Runner, Stream

_SHORT_SECONDS = 60.0
_BUILD_SECONDS = 6 * 3600.0
_SQUASH = "--mksquashfs-args"
# An engine's default filters refuse the namespaces and mounts that Apptainer makes for its caller.
_UNCONFINED = ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined")


def container_options(*, fuse: bool) -> tuple[str, ...]:
    """Return what ``docker run`` must get for Apptainer to work in a container.

    No privilege: user namespaces and squashfuse are enough, as they are for a user of a cluster.

    Args:
        fuse: whether this machine has ``/dev/fuse``; without it a SIF is unpacked for each call.
    """
    options = tuple(f"--security-opt={option}" for option in _UNCONFINED)
    return (*options, "--device=/dev/fuse") if fuse else options


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
        self._tunes: bool | None = None

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
        """Tell whether ``build`` passes arguments on to ``mksquashfs``; asked once.

        Those before 1.4 do not. Source: Apptainer's CHANGELOG.
        """
        if self._tunes is None:
            done = self.run(Invocation(("build", "--help"), _SHORT_SECONDS, {}))
            self._tunes = _SQUASH in done.stdout
        return self._tunes

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
