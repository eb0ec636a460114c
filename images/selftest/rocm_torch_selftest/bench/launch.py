"""Starts one worker process and reads its answer; the supervisor's side of ``worker.py``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Mapping, Protocol

from rocm_torch_selftest.context import run_program

CRASHED = "crashed"
_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from rocm_torch_selftest.bench.worker import main; sys.exit(main(sys.argv[2]))"
)


class Launch(Protocol):
    """Runs a request in a process of its own and returns the answer."""

    def __call__(self, request: Mapping[str, Any], *, limit_s: float) -> Mapping[str, Any]:
        """Return an answer with a ``status``, whatever happened to the process."""


def launcher(scratch: Path) -> Launch:
    """Return what starts workers whose files lie in ``scratch``."""
    count = 0

    def launch(request: Mapping[str, Any], *, limit_s: float) -> Mapping[str, Any]:
        nonlocal count
        count += 1
        path = scratch / f"worker-{count}.request"
        path.write_text(json.dumps(request), encoding="utf-8")
        package_parent = str(Path(__file__).resolve().parents[2])
        ran = run_program(
            [sys.executable, "-c", _BOOTSTRAP, package_parent, str(path)], limit_s=limit_s
        )
        answer = _read(path.with_suffix(".answer"))
        if answer is not None and ran.status == 0:
            return answer
        told = "gave no answer" if ran.status is None else f"ended with status {ran.status}"
        return {"status": CRASHED, "detail": f"The process {told}: {ran.last_line}"}

    return launch


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and "status" in document else None
