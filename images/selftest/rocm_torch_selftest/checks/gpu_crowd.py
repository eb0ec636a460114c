"""Checks ``concurrent`` and ``allreduce``: several processes that use GPUs at the same time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from rocm_torch_selftest.checks.gpu import devices, first_device, usable_torch
from rocm_torch_selftest.outcome import CheckFailedError, failed, not_applicable, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

LIMIT_S = 150.0
_WORKER = "rocm_torch_selftest.checks.gpu_workers"
_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    f"from {_WORKER} import main; sys.exit(main(sys.argv[2]))"
)


def run_concurrent(context: Context) -> Outcome:
    """Two processes compute on the first GPU during the same time."""
    _, skip = usable_torch(context)
    if skip is not None:
        return skip
    context.stage("two processes on one device")
    answers = run_workers(
        [{"job": "concurrent", "device": first_device(context)} for _ in range(2)],
        context.scratch,
    )
    overlap = overlap_seconds(answers)
    if overlap <= 0:
        return failed("The two processes did not compute at the same time.", answers=answers)
    done = [answer["products"] for answer in answers]
    return passed(
        f"Two processes computed {done[0]} and {done[1]} right products on one device, "
        f"{overlap:.1f} s of it at the same time.",
        overlap_seconds=round(overlap, 3),
        products=done,
    )


def overlap_seconds(answers: Sequence[Mapping[str, Any]]) -> float:
    """Return how long all workers computed at the same time; negative where they did not."""
    ends, starts = [a["ended"] for a in answers], [a["started"] for a in answers]
    return float(min(ends) - max(starts))


def run_allreduce(context: Context) -> Outcome:
    """One process a GPU adds up tensors with the others (RCCL, NCCL)."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    names = ("cpu", "cpu") if context.device == "cpu" else devices(torch, context)
    if len(names) < 2:
        return not_applicable("There is one GPU, and adding up over GPUs takes two.", gpus=1)
    if not torch.distributed.is_available():
        return failed("This torch is built without torch.distributed.")
    context.stage(f"{len(names)} processes, one on each device")
    store = str(context.scratch / "rendezvous")
    answers = run_workers(
        [
            {
                "job": "allreduce",
                "device": name,
                "rank": rank,
                "ranks": len(names),
                "backend": "gloo" if name == "cpu" else "nccl",
                "store": store,
            }
            for rank, name in enumerate(names)
        ],
        context.scratch,
    )
    rates = [answer["gb_per_s"] for answer in answers]
    return passed(
        f"{len(names)} devices agree about {answers[0]['sums']} sums; {min(rates):g} GB/s on the "
        "largest.",
        gpus=len(names),
        gb_per_s=rates,
        library=answers[0]["library"],
    )


def run_workers(jobs: Sequence[Mapping[str, Any]], scratch: Path) -> list[dict[str, Any]]:
    """Start one process a job at the same time and return what each one answered.

    Raises:
        CheckFailedError: a process failed, died or did not end; its last words are named.
    """
    package_parent = str(Path(__file__).resolve().parents[2])
    processes: list[subprocess.Popen[bytes]] = []
    folders = [scratch / f"worker-{number}" for number in range(len(jobs))]
    try:
        for folder, job in zip(folders, jobs):
            folder.mkdir()
            request = {**job, "folder": str(folder), "peers": [str(path) for path in folders]}
            (folder / "request").write_text(json.dumps(request), encoding="utf-8")
            with (folder / "log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-c", _BOOTSTRAP, package_parent, str(folder / "request")],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                )
        _wait(processes)
    finally:
        _end(processes)
    return [
        answer_of(folder, process.returncode, number)
        for number, (folder, process) in enumerate(zip(folders, processes))
    ]


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for all; once one has failed, the others would wait for it for ever."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        states = [process.poll() for process in processes]
        if any(state not in (None, 0) for state in states) or None not in states:
            return
        time.sleep(0.05)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)


def answer_of(folder: Path, status: int | None, number: int) -> dict[str, Any]:
    """Return what a worker answered.

    Raises:
        CheckFailedError: it did not; what it said is printed as well, so that the known faults
            are found in it.
    """
    text = (folder / "log").read_text(encoding="utf-8", errors="replace")
    sys.stderr.write(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    try:
        answer: Any = json.loads((folder / "answer").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        answer = None
    if status == 0 and isinstance(answer, dict) and not answer.get("problem"):
        return answer
    if isinstance(answer, dict) and answer.get("problem"):
        raise CheckFailedError(f"Process {number}: {answer['problem']}", process=number)
    ending = "did not end" if status in (None, -signal.SIGKILL) else f"ended with status {status}"
    last = lines[-1] if lines else "it said nothing"
    raise CheckFailedError(f"Process {number} {ending}: {last}", process=number, status=status)


def quiet_environment() -> None:
    """Keep collectives on this host: names and interfaces of a container need not resolve."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
