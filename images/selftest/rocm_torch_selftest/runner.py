"""Runs checks in child processes, each under its time limit, and says how a process ended.

A hang, an abort and an exit without a result are results: of the check that ran at that time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from rocm_torch_selftest.child import STAGE_FILE
from rocm_torch_selftest.kfd import gpu_targets
from rocm_torch_selftest.known_lines import GPU_HANG, fault, harmless_counts
from rocm_torch_selftest.outcome import ERROR, FAIL, STATUSES, Result
from rocm_torch_selftest.table import GPU

if TYPE_CHECKING:
    from rocm_torch_selftest.cell import Cell
    from rocm_torch_selftest.table import Check

TERM_GRACE_S = 2.0
KILL_GRACE_S = 5.0
EXIT_LIMIT_S = 20.0
LOG_FILE = "log"
_POLL_S = 0.02
_LOG_TAIL = 12
_LOG_BYTES = 512 * 1024
HANG = "HANG"

_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from rocm_torch_selftest.child import main; sys.exit(main(sys.argv[2]))"
)


@dataclass(frozen=True)
class Ending:
    """How a child process ended.

    Attributes:
        status: exit status as subprocess gives it; negative for a signal; None where even
            SIGKILL did not end it (a process in uninterruptible sleep).
        late: it was ended from outside because a time limit passed.
        last_signal: the name of the last signal that was sent, when it was late.
    """

    status: int | None
    late: bool = False
    last_signal: str = ""

    def told(self, limit_s: float) -> str:
        """Tell the ending as the second half of a sentence."""
        if self.late:
            end = "and not even SIGKILL ended it" if self.status is None else ""
            return f"gave no result within {limit_s:g} s, was sent {self.last_signal} {end}".strip()
        if self.status is not None and self.status < 0:
            return f"was ended by {_signal_name(-self.status)}"
        return f"exited with status {self.status} without a result"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class Setting:
    """What all child processes of a run share.

    Attributes:
        cell: what the image promises, or None.
        scratch: an existing directory under which each process gets its own.
        stop: when it is set, running processes are ended and InterruptedError is raised.
        device: ``cuda``, or ``cpu`` for a rehearsal.
        options: of the level, for its checks; JSON values.
    """

    cell: Cell | None
    scratch: Path
    stop: threading.Event = field(default_factory=threading.Event)
    device: str = "cuda"
    options: Mapping[str, Any] = field(default_factory=dict)


def run_together(
    checks: Sequence[Check], setting: Setting, *, stop_at_crash: bool = False
) -> dict[str, Result]:
    """Run checks in one child process; after a crash the rest gets a fresh one.

    Args:
        checks: rows of the table, run in this order.
        setting: what all processes of the run share.
        stop_at_crash: leave the rest out after a crash, because it would crash alike.

    Returns:
        A result for each check; with ``stop_at_crash``, for each one up to the crash.
    """
    results: dict[str, Result] = {}
    pending = list(checks)
    while pending:
        folder = setting.scratch / f"{pending[0].id}-{len(pending)}"
        folder.mkdir()
        found = _run_child(pending, setting, folder)
        results.update(found)
        crashed = len(found) < len(pending)
        pending = [check for check in pending if check.id not in results]
        if crashed and stop_at_crash:
            break
    return results


def _run_child(checks: Sequence[Check], setting: Setting, folder: Path) -> dict[str, Result]:
    request = _write_request(checks, setting, folder)
    package_parent = str(Path(__file__).resolve().parent.parent)
    work = folder / "cwd"  # empty, so that no file of the user's directory shadows a module
    work.mkdir()
    started = time.monotonic()
    with (folder / LOG_FILE).open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOTSTRAP, package_parent, str(request)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=work,
            start_new_session=True,
        )
        try:
            ending = _supervise(process, checks, folder, setting.stop)
        finally:
            _end_group(process.pid, signal.SIGKILL)  # and whatever it left running
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=KILL_GRACE_S)
    results: dict[str, Result] = {}
    for check in checks:
        result = _read_result(check, folder)
        if result is None:
            break
        results[check.id] = result
    blamed = _blame(checks, results, ending, folder, time.monotonic() - started)
    return _with_lines(blamed, checks[0].id, log_text(folder))


def _write_request(checks: Sequence[Check], setting: Setting, folder: Path) -> Path:
    request, cell = folder / "request", setting.cell
    document = {
        "folder": str(folder),
        "cell": None if cell is None else cell.to_json(),
        "device": setting.device,
        "checks": [{"id": check.id, "run": check.run} for check in checks],
        "options": dict(setting.options),
    }
    request.write_text(json.dumps(document), encoding="utf-8")
    return request


def _supervise(
    process: subprocess.Popen[bytes], checks: Sequence[Check], folder: Path, stop: threading.Event
) -> Ending:
    """Wait for the end of the process; each check's own limit starts when the one before ends."""
    done = 0
    deadline = time.monotonic() + checks[0].limit_s
    while True:
        try:
            return Ending(process.wait(timeout=_POLL_S))
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise InterruptedError("The self-test was told to stop.") from None
        if done < len(checks) and (folder / f"{checks[done].id}.json").exists():
            done += 1
            limit = checks[done].limit_s if done < len(checks) else EXIT_LIMIT_S
            deadline = time.monotonic() + limit
        elif time.monotonic() > deadline:
            return _end_late(process)


def _end_late(process: subprocess.Popen[bytes]) -> Ending:
    for number, grace in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        _end_group(process.pid, number)
        try:
            return Ending(process.wait(timeout=grace), late=True, last_signal=number.name)
        except subprocess.TimeoutExpired:
            continue
    return Ending(None, late=True, last_signal=signal.SIGKILL.name)


def _end_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _read_result(check: Check, folder: Path) -> Result | None:
    try:
        document: Any = json.loads((folder / f"{check.id}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("id") != check.id:
        return None
    status, seconds = document.get("status"), document.get("seconds")
    data = document.get("data")
    if status not in STATUSES or not isinstance(seconds, (int, float)):
        return None
    if not isinstance(data, dict):
        return None
    return Result(check.id, check.level, status, seconds, str(document.get("detail")), data)


def _blame(
    checks: Sequence[Check],
    results: Mapping[str, Result],
    ending: Ending,
    folder: Path,
    seconds: float,
) -> dict[str, Result]:
    """Turn a bad ending into the failure of the check that was running."""
    blamed = dict(results)
    unfinished = [check for check in checks if check.id not in results]
    if not unfinished and ending == Ending(0):
        return blamed
    log = _log_tail(folder)
    if unfinished:
        check, stage, limit = unfinished[0], _stage(unfinished[0].id, folder), unfinished[0].limit_s
        seconds -= sum(result.seconds for result in results.values())
    else:
        check, stage, limit = checks[-1], "end of the process", EXIT_LIMIT_S
        seconds = results[check.id].seconds
    said = f": {log[-1]}" if log else "."
    detail = f"The process {ending.told(limit)} (stage: {stage}){said}"
    data: dict[str, Any] = {
        "exit": ending.status,
        "late": ending.late,
        "stage": stage,
        "log": log,
    }
    if ending.late:
        data["code"] = GPU_HANG if check.level == GPU else HANG
    if ending.status is None:
        data["host_unhealthy"] = True
    blamed[check.id] = Result(check.id, check.level, FAIL, max(seconds, 0.0), detail, data)
    return blamed


def _stage(check_id: str, folder: Path) -> str:
    try:
        owner, _, words = (folder / STAGE_FILE).read_text(encoding="utf-8").partition("\n")
    except OSError:
        return "start of the process"
    return words if owner == check_id else "start"


def _with_lines(results: Mapping[str, Result], first: str, log: str) -> dict[str, Result]:
    """Name the known fault behind each failure, and count the harmless lines of the process."""
    named = dict(results)
    for check_id, result in results.items():
        if result.status not in (FAIL, ERROR) or "code" in result.data:
            continue
        found = fault(f"{result.detail}\n{log}", os.environ, gpu_targets())
        if found is not None:
            code, meaning = found
            detail = f"{result.detail.rstrip('.')}: {meaning}."
            named[check_id] = replace(result, detail=detail, data={**result.data, "code": code})
    harmless = harmless_counts(log)
    if harmless and first in named:
        data = {**named[first].data, "harmless_lines": harmless}
        named[first] = replace(named[first], data=data)
    return named


def log_text(folder: Path) -> str:
    """Return what a process said, at most the first and the last 512 KiB of it."""
    raw = (folder / LOG_FILE).read_bytes()
    if len(raw) > 2 * _LOG_BYTES:
        raw = raw[:_LOG_BYTES] + b"\n" + raw[-_LOG_BYTES:]
    return raw.decode("utf-8", "replace")


def _log_tail(folder: Path) -> list[str]:
    lines = log_text(folder).splitlines()
    return [line.rstrip() for line in lines if line.strip()][-_LOG_TAIL:]
