"""The process in which checks run: it writes each outcome to a file of its own, at once.

The parent believes files and exit statuses only. What a check prints goes to the log, and a
check that ends the process without an outcome has failed, whatever the exit status.
"""

from __future__ import annotations

import importlib
import json
import resource
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping

from rocm_torch_selftest.cell import Cell
from rocm_torch_selftest.context import Context
from rocm_torch_selftest.outcome import ERROR, FAIL, STATUSES, CheckFailedError, Outcome

if TYPE_CHECKING:
    from types import TracebackType

STAGE_FILE = "stage"
CHECKS_PACKAGE = "rocm_torch_selftest.checks"
# What torch and the operating system raise when they cannot do what was asked: the image's
# failure. Any other exception is a mistake in the self-test itself.
_REFUSALS = (RuntimeError, OSError, ImportError, MemoryError)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


class Recorder:
    """Records the outcome of one check, whichever way its function ends.

    Exceptions are outcomes and end here; SystemExit and KeyboardInterrupt are not, and end the
    process without one.
    """

    def __init__(self, check_id: str, folder: Path) -> None:
        self._id = check_id
        self._folder = folder
        self._started = time.monotonic()
        self._outcome: Outcome | None = None

    def __enter__(self) -> Recorder:
        self.stage("start")
        return self

    def stage(self, words: str) -> None:
        """Note what the check is about to do."""
        write_atomically(self._folder / STAGE_FILE, f"{self._id}\n{words}")

    def put(self, outcome: Outcome) -> None:
        """Keep what the check function returned."""
        self._outcome = outcome

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        outcome = self._outcome if error is None else _outcome_of(error)
        if not isinstance(outcome, Outcome) or outcome.status not in STATUSES:
            outcome = Outcome(ERROR, f"The check returned {outcome!r}, which is no outcome.")
        document = {
            "id": self._id,
            "status": outcome.status,
            "detail": outcome.detail,
            "data": dict(outcome.data),
            "seconds": time.monotonic() - self._started,
        }
        write_atomically(self._folder / f"{self._id}.json", json.dumps(document))
        return True


def _outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, CheckFailedError):
        return Outcome(FAIL, error.detail, error.data)
    status = FAIL if isinstance(error, _REFUSALS) else ERROR
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    whose = "" if status == FAIL else "The self-test itself broke: "
    detail = f"{whose}{type(error).__name__}: {_first_line(str(error))}"
    return Outcome(status, detail, {"traceback": "".join(lines).splitlines()[-20:]})


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "(no message)"


def _function(run: str) -> Any:
    module, _, name = run.partition(":")
    if "." not in module:
        module = f"{CHECKS_PACKAGE}.{module}"
    return getattr(importlib.import_module(module), name)


def main(request_path: str) -> int:
    """Run the checks that the request file names, one after the other."""
    # A crash is told by its signal; a core file of a process with torch would fill the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request: Mapping[str, Any] = json.loads(Path(request_path).read_text(encoding="utf-8"))
    folder = Path(request["folder"])
    cell = None if request["cell"] is None else Cell.from_json(request["cell"])
    for row in request["checks"]:
        with Recorder(row["id"], folder) as recorder:
            scratch = folder / f"{row['id']}.d"
            scratch.mkdir(exist_ok=True)
            options = request.get("options", {})
            context = Context(cell, scratch, recorder.stage, options, request["device"])
            recorder.put(_function(row["run"])(context))
    return 0
