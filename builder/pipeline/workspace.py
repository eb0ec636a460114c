"""Where things lie in a working copy, and what every step works with."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from builder.errors import CouldNotError, Problem
from builder.report.records import RecordStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from builder.engines.process import StoppableRunner
    from builder.oci import Digest
    from builder.report.progress import Progress


@dataclass(frozen=True, slots=True)
class Workspace:
    """The paths of one working copy; ``root`` is the folder that holds ``matrix.yaml``."""

    root: Path

    @property
    def matrix(self) -> Path:
        """The matrix file."""
        return self.root / "matrix.yaml"

    @property
    def templates(self) -> Path:
        """The folder of templates."""
        return self.root / "templates"

    @property
    def images(self) -> Path:
        """The folder of rendered contexts and of what is copied into every image."""
        return self.root / "images"

    @property
    def state(self) -> Path:
        """The folder of everything that a run leaves behind; never committed."""
        return self.root / ".rocm-torch"

    @property
    def layout(self) -> Path:
        """The OCI layout that all cells share."""
        return self.state / "layout"

    @property
    def records(self) -> RecordStore:
        """The records of finished steps."""
        return RecordStore(self.state / "records")

    @property
    def exports(self) -> Path:
        """The folder of the layouts that builds export to, one a build."""
        return self.state / "exports"

    def context(self, cell: str) -> Path:
        """Return the folder of the rendered context of ``cell``."""
        return self.images / cell

    def log(self, cell: str, step: str) -> Path:
        """Return the log file of one step of one cell."""
        return self.state / "logs" / cell / f"{step}.log"

    def evidence(self, digest: Digest) -> Path:
        """Return the folder of the SBOMs and reports about the image ``digest``."""
        return self.state / "evidence" / digest.hex


@dataclass(frozen=True, slots=True)
class Tools:
    """What a step may use of the outside world, passed in so that tests can pass other things.

    Attributes:
        runner: starts processes.
        now: the time of day, in UTC.
        clock: seconds of a clock that never goes back.
        progress: hears what happens.
        stopping: set when the run is to end: what moves bytes by itself looks at it.
    """

    runner: StoppableRunner
    now: Callable[[], datetime]
    clock: Callable[[], float]
    progress: Progress
    stopping: threading.Event = field(default_factory=threading.Event)

    def go_on(self) -> None:
        """Raise where the run is to end.

        Raises:
            CouldNotError: ``STOPPED``.
        """
        if self.stopping.is_set():
            raise CouldNotError(Problem("STOPPED", "the run was stopped"))
