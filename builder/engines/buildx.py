"""Adapter for ``docker buildx bake``: builds one target of a bake file and returns its digest."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from builder.engines.buildx_progress import ProgressLog
from builder.engines.process import Command
from builder.errors import CouldNotError, Problem
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.engines.buildx_progress import Doing
    from builder.engines.process import Completed, Runner, Stream

OLDEST = Version("0.13.0")
_BUILD_SECONDS = 4 * 3600.0
_TAIL_LINES = 30
# BuildKit's local store refuses a second writer for a moment ("could not lock .../index.json.lock",
# "ref ... locked for ..."); the build itself is cached by then.
_BUSY = re.compile(r"could not lock|index\.json.* locked|locked for|ref .* locked", re.IGNORECASE)
_BUSY_TRIES = 4


class Buildx:
    """Builds through the buildx plugin of the docker CLI.

    Args:
        runner: starts processes.
        builder: name of a buildx builder; the default one of the engine where it is None.
    """

    def __init__(self, runner: Runner, builder: str | None = None) -> None:
        self._runner = runner
        self._builder = builder

    def check(self) -> Version:
        """Return buildx's version.

        Raises:
            CouldNotError: ``BUILDX_MISSING`` or ``BUILDX_TOO_OLD``.
        """
        completed = self._runner.run(Command(("docker", "buildx", "version"), timeout=30))
        match = re.search(r"v?(\d+\.\d+\.\d+)", completed.stdout)
        if completed.returncode or not match:
            raise CouldNotError(
                Problem(
                    code="BUILDX_MISSING",
                    what="the docker CLI has no buildx plugin",
                    why=completed.tail(2) or None,
                    fix="install docker-buildx (Debian, Ubuntu) or docker-buildx-plugin (Docker's)",
                )
            )
        try:
            version = Version(match.group(1))
        except InvalidVersion:  # pragma: no cover - the pattern admits versions only
            version = Version("0")
        if version < OLDEST:
            raise CouldNotError(
                Problem(
                    code="BUILDX_TOO_OLD",
                    what=f"buildx {version} is too old: it does not report progress as JSON",
                    fix=f"install buildx {OLDEST} or newer",
                )
            )
        return version

    def bake(
        self,
        bake_file: Path,
        target: str,
        *,
        log: Path,
        no_cache: bool = False,
        on_log: Callable[[str], None] | None = None,
        on_doing: Callable[[Doing], None] | None = None,
    ) -> Digest:
        """Build ``target`` and return the digest of its image manifest.

        Args:
            bake_file: JSON as of :mod:`builder.plan.bake`.
            target: name of the target in it.
            log: file that receives the readable log of this build.
            no_cache: run every step anew.
            on_log: gets each log line as it comes.
            on_doing: told what the build is at, each time that changes.

        Raises:
            CouldNotError: ``BUILD_FAILED`` with the last lines of the log and its path.
        """
        for attempt in range(1, _BUSY_TRIES + 1):
            with tempfile.TemporaryDirectory(prefix="bake-") as folder:
                metadata = Path(folder) / "metadata.json"
                argv = self._argv(bake_file, target, metadata, no_cache=no_cache)
                completed, lines = self._run(argv, log, on_log, on_doing)
                if completed.returncode == 0:
                    return _digest(json.loads(metadata.read_text("utf-8")), target)
            if attempt < _BUSY_TRIES and _BUSY.search("\n".join(lines[-5:])):
                no_cache = False
                continue
            break
        raise CouldNotError(
            Problem(
                code="BUILD_FAILED",
                what=f"the build ended with status {completed.returncode}; its last lines:\n"
                + "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:]),
                where=target,
                fix=f"read the whole log: {log}",
            )
        )

    def _argv(
        self, bake_file: Path, target: str, metadata: Path, *, no_cache: bool
    ) -> tuple[str, ...]:
        return (
            *("docker", "buildx"),
            *(("--builder", self._builder) if self._builder else ()),
            *("bake", "--file", str(bake_file), "--progress", "rawjson"),
            # Attestations inside the image index carry times: ours are attached as referrers.
            *("--provenance=false", "--sbom=false", "--metadata-file", str(metadata)),
            *(("--no-cache",) if no_cache else ()),
            target,
        )

    def _run(
        self,
        argv: tuple[str, ...],
        log: Path,
        on_log: Callable[[str], None] | None,
        on_doing: Callable[[Doing], None] | None,
    ) -> tuple[Completed, list[str]]:
        progress, lines = ProgressLog(), list[str]()
        last: Doing | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8", buffering=1) as stream:

            def write(found: list[str]) -> None:
                for line in found:
                    lines.append(line)
                    stream.write(line + "\n")
                    if on_log is not None:
                        on_log(line)

            def take(name: Stream, line: str) -> None:
                nonlocal last
                write(progress.feed(line) if name == "stderr" else [line])
                doing = progress.doing
                if on_doing is not None and doing is not None and doing != last:
                    last = doing
                    on_doing(doing)

            completed = self._runner.run(Command(argv, timeout=_BUILD_SECONDS), take)
            write(progress.rest())
        return completed, lines


def _digest(metadata: dict[str, dict[str, object]], target: str) -> Digest:
    digest = metadata.get(target, {}).get("containerimage.digest")
    if not isinstance(digest, str):
        raise CouldNotError(
            Problem(
                code="BUILD_WITHOUT_DIGEST",
                what="buildx built the target and did not say its digest",
                where=target,
                fix="use Docker with the containerd image store, or a docker-container builder",
            )
        )
    return Digest(digest)
