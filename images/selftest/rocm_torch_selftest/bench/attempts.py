"""How one workload is measured: in fresh processes, with a smaller batch where it does not fit."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from rocm_torch_selftest.bench import caches
from rocm_torch_selftest.bench.options import MOST_PROCESSES, Options
from rocm_torch_selftest.bench.worker import OK, OUT_OF_MEMORY, REFUSED

if TYPE_CHECKING:
    from rocm_torch_selftest.bench.launch import Launch
    from rocm_torch_selftest.bench.measure import Plan
    from rocm_torch_selftest.bench.workloads import Workload

# A first run searches and compiles kernels for minutes; nothing that is measured takes that long.
FIRST_LIMIT_S = 600.0
_USUAL_CHECK_S = 12.0  # of one process that need not search: import, context, model, steps
_REFERENCE_FACTOR = 10.0  # a warm process needs this many steady steps, or this many seconds, ...
_REFERENCE_FLOOR_S = 5.0  # ... until it is steady; more is searching


@dataclass(frozen=True)
class Tried:
    """What came of a workload.

    Attributes:
        workload: with the batch that was run in the end.
        answers: of the processes that measured, in order; empty where none did.
        problem: the answer that ended the attempts, None where all went well.
        shrunk: the batches that did not fit.
        eager_because: why the step was not recorded although the workload asks for it.
    """

    workload: Workload
    answers: tuple[Mapping[str, Any], ...]
    problem: Mapping[str, Any] | None = None
    shrunk: tuple[int, ...] = ()
    eager_because: str | None = None


def another_process(
    options: Options, name: str, now: Callable[[], float]
) -> Callable[[Sequence[Mapping[str, Any]]], bool]:
    """Return what says, after each process of the workload ``name``, whether one more is due.

    Where the call names no number, two are due if the budget has room for the other workloads
    too, and always where the backend keeps kernels on disk: the first one may have searched them.
    """
    started = now()

    def due(answers: Sequence[Mapping[str, Any]]) -> bool:
        if options.processes is not None:
            return len(answers) < options.processes
        if not answers:
            return True
        if len(answers) >= MOST_PROCESSES:
            return False
        if answers[0]["caches"]["state"] is not None:
            return True
        took = (now() - started) / len(answers)
        others = options.after.get(name, 0) * _USUAL_CHECK_S
        return now() + took + others <= options.deadline

    return due


def attempt(
    workload: Workload,
    launch: Launch,
    plan: Plan,
    due: Callable[[Sequence[Mapping[str, Any]]], bool],
    stage: Callable[[str], None],
) -> Tried:
    """Measure a workload in fresh processes; halve the batch where memory ends.

    A step that the device cannot record is measured as it is, and has another id then.

    Args:
        workload: with its nominal batch.
        launch: starts a process.
        plan: how long one measures.
        due: says, from the answers so far, whether one more process is due.
        stage: told what happens next.
    """
    answers: list[Mapping[str, Any]] = []
    shrunk: list[int] = []
    eager: str | None = None
    while due(answers):
        stage(f"process {len(answers) + 1}, batch {workload.batch}")
        request = {"job": "workload", "workload": workload.to_json(), "plan": plan.__dict__}
        answer = launch(request, limit_s=plan.limit_s + FIRST_LIMIT_S)
        if answer["status"] == OK:
            answers.append(answer)
        elif answer["status"] == OUT_OF_MEMORY and workload.batch > 1:
            shrunk.append(workload.batch)
            workload = replace(workload, batch=workload.batch // 2)
            answers.clear()  # processes with different batches cannot be compared
        elif answer["status"] == REFUSED and workload.replay:
            eager = str(answer["detail"])
            workload = replace(workload, replay=False)
            answers.clear()
        else:
            return Tried(workload, (), answer, tuple(shrunk), eager)
    return Tried(workload, tuple(answers), None, tuple(shrunk), eager)


def data_of(tried: Tried, nominal: Workload) -> dict[str, Any]:
    """Return the data of a measured workload; with the samples, so that others can compare."""
    workload, last = tried.workload, tried.answers[-1]
    samples = [time for answer in tried.answers for time in answer["samples_s"]]
    median = statistics.median(samples)
    medians = [answer["median_s"] for answer in tried.answers if "median_s" in answer]
    widths = [one["interval_fraction"] for one in tried.answers if "interval_fraction" in one]
    items = workload.batch * workload.items
    shared = ("settings", "memory", "device", "backend", "slowdown")
    own = [{k: v for k, v in answer.items() if k not in shared} for answer in tried.answers]
    return {
        "workload": workload.id,
        "nominal_workload": nominal.id,
        "batch": workload.batch,
        "nominal_batch": nominal.batch,
        "did_not_fit": list(tried.shrunk),
        "eager_because": tried.eager_because,
        "tiny": workload.tiny,
        "median_s": median,
        "throughput": items / median,
        "unit": f"{workload.unit}/s",
        "interval_fraction": max(widths) if len(widths) == len(tried.answers) else None,
        "between_processes": max(medians) / min(medians) if medians else None,
        "precise": all(answer["precise"] for answer in tried.answers),
        "cache": cache_of(tried.answers),
        **{name: last[name] for name in shared},
        "processes": own,
    }


def cache_of(answers: tuple[Mapping[str, Any], ...]) -> dict[str, str] | None:
    """Judge the kernel cache by the processes' ways to the steady state; None without a cache."""
    states = [answer["caches"]["state"] for answer in answers]
    if states[0] is None:
        return None
    times = [answer.get("time_to_steady_s") for answer in answers]
    if not all(isinstance(time, (int, float)) for time in times):
        return {"code": caches.UNKNOWN, "detail": "A process did not become steady."}
    files = [
        tuple(caches.files_of(answer["caches"][when]) for when in ("before", "after"))
        for answer in answers
    ]
    reference = max(_REFERENCE_FLOOR_S, _REFERENCE_FACTOR * answers[-1]["median_s"])
    found = caches.judge([float(time) for time in times if time is not None], files, reference)
    return {"code": found.code, "detail": found.detail}
