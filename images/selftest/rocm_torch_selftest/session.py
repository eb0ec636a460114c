"""One run of a level: from the table to the document."""

from __future__ import annotations

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from rocm_torch_selftest import SCHEMA
from rocm_torch_selftest.bench.request import Request
from rocm_torch_selftest.checks.environment import driver_version, python_version
from rocm_torch_selftest.known_lines import HARMLESS_LINES
from rocm_torch_selftest.outcome import FAIL, PASS, SKIP, Result
from rocm_torch_selftest.runner import Setting, run_together
from rocm_torch_selftest.table import BENCH, GPU, PROBES, required_ids
from rocm_torch_selftest.verdict import summary

if TYPE_CHECKING:
    from rocm_torch_selftest.table import Check

IMPORT = "import"


@dataclass(frozen=True)
class Run:
    """What to run: the level, those of its checks that are wanted, and the setting.

    ``bench`` is what was asked of the level of that name; other levels do not look at it.
    """

    level: str
    checks: tuple[Check, ...]
    setting: Setting
    bench: Request = field(default_factory=Request)
    started: float = field(default_factory=time.time)


def run_level(run: Run) -> dict[str, Any]:
    """Run the selected checks of a level and return the document.

    Checks without torch run beside the others: they wait for other programs most of the time.
    """
    plain = [check for check in run.checks if not check.needs_torch and not check.alone]
    with ThreadPoolExecutor(max_workers=1) as beside:
        future = beside.submit(run_together, plain, run.setting)
        try:
            results = _run_before_torch(run)
            probes, found = _run_torch_checks(run, results)
            results.update(found)
            results.update(future.result())
        finally:
            run.setting.stop.set()
    ordered = [rehearsed(results[check.id], run.setting) for check in run.checks]
    harmless = harmless_lines([*probes.values(), *ordered])
    environment = environment_of(probes)
    if "hipBLASLt" in harmless:
        environment["blas_backend"] = "hipblas"  # numbers do not compare with those of hipBLASLt
    required = run.bench.narrowed(required_ids(run.level, environment["backend"]))
    return {
        "schema": SCHEMA,
        "level": run.level,
        "cell": None if run.setting.cell is None else run.setting.cell.id,
        "rehearsal": run.setting.device == "cpu",
        "summary": summary(ordered, required),
        "environment": environment,
        "harmless_lines": harmless,
        **({BENCH: run.bench.to_json()} if run.level == BENCH else {}),
        "checks": [result.to_json() for result in ordered],
    }


def _run_before_torch(run: Run) -> dict[str, Result]:
    """Run what needs the GPU and no torch, one after the other: it tells whose fault a fault is."""
    results: dict[str, Result] = {}
    for check in run.checks:
        if check.alone and not check.needs_torch:
            results[check.id] = _run_one(check, run.setting, results)
    return results


def _run_one(check: Check, setting: Setting, before: Mapping[str, Result]) -> Result:
    """Run a check, unless one before it left a process that nothing can end on this host."""
    stuck = [result for result in before.values() if result.data.get("host_unhealthy")]
    if stuck:
        detail = (
            f"Not tried: the process of check {stuck[0].id} does not end, and this host needs "
            "attention."
        )
        return Result(check.id, check.level, SKIP, 0.0, detail)
    return run_together([check], setting)[check.id]


def _run_torch_checks(
    run: Run, before: Mapping[str, Result]
) -> tuple[dict[str, Result], dict[str, Result]]:
    checks = [check for check in run.checks if check.needs_torch]
    first = [check for check in checks if check.id == IMPORT]
    found = run_together([*first, *PROBES], run.setting, stop_at_crash=True)
    probes = {check.id: found[check.id] for check in PROBES if check.id in found}
    results = {check.id: found[check.id] for check in first}
    rest = [check for check in checks if check.id != IMPORT]
    broken = _broken_torch(found)
    if broken is not None:
        results.update({check.id: blocked(check, broken) for check in rest})
        return probes, results
    setting = run.setting
    if run.level == BENCH:
        names = [check.id for check in rest]
        options = run.bench.options(environment_of(probes), names, run.started)
        setting = replace(setting, options=options)
    for group in groups(rest):
        if len(group) == 1:
            results[group[0].id] = _run_one(group[0], setting, {**before, **results})
        else:
            results.update(run_together(group, setting))
    return probes, results


def _broken_torch(found: Mapping[str, Result]) -> Result | None:
    """Return the result that shows that torch does not import, if one does."""
    for check_id in (IMPORT, PROBES[0].id):
        result = found.get(check_id)
        if result is not None and result.status != PASS:
            return result
    return None


def blocked(check: Check, broken: Result) -> Result:
    """Return the result of a check that was not tried because torch does not import.

    Where the check ``import`` has failed itself, that says it; else this check has to.
    """
    if broken.id == IMPORT:
        status, reason = SKIP, f"see the check {IMPORT}."
    else:
        status, reason = FAIL, broken.detail
    detail = f"Not tried, because torch does not import: {reason}"
    return Result(check.id, check.level, status, 0.0, detail)


def groups(checks: Sequence[Check]) -> list[list[Check]]:
    """Put checks that may share a process together, at the place of the first of them."""
    together: list[Check] = []
    found: list[list[Check]] = []
    for check in checks:
        if check.alone:
            found.append([check])
            continue
        if not together:
            found.append(together)
        together.append(check)
    return found


def environment_of(probes: Mapping[str, Result]) -> dict[str, Any]:
    """Return the document's environment; what could not be found out is None."""
    torch_probe, device_probe = (probes.get(check.id) for check in PROBES)
    torch = dict(torch_probe.data) if torch_probe and torch_probe.status == PASS else {}
    devices = dict(device_probe.data) if device_probe and device_probe.status == PASS else {}
    environment = {
        "torch": torch.get("torch"),
        "hip": torch.get("hip"),
        "cuda": torch.get("cuda"),
        "backend": torch.get("backend"),
        "python": python_version(),
        "glibc": _glibc(),
        "driver": driver_version(),
        "kernel": platform.release(),
        "devices": devices.get("devices", []),
    }
    if device_probe is not None and device_probe.status != PASS:
        environment["devices_problem"] = device_probe.detail
    return environment


def rehearsed(result: Result, setting: Setting) -> Result:
    """Take the pass from a GPU check that ran on the CPU: it shows nothing about a GPU."""
    if setting.device == "cpu" and result.level == GPU and result.status == PASS:
        detail = f"Rehearsed on the CPU, which shows nothing about a GPU. {result.detail}"
        return replace(result, status=SKIP, detail=detail)
    return result


def harmless_lines(results: Sequence[Result]) -> dict[str, dict[str, Any]]:
    """Add up the harmless lines that all processes printed, each kind with its reason."""
    counts: dict[str, int] = {}
    for result in results:
        for name, count in result.data.get("harmless_lines", {}).items():
            counts[name] = counts.get(name, 0) + count
    reasons = {kind.name: kind.reason for kind in HARMLESS_LINES}
    return {
        name: {"count": count, "reason": reasons[name]} for name, count in sorted(counts.items())
    }


def _glibc() -> str | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None
    return text.split()[-1] if text else None
