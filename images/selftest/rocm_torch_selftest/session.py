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
from rocm_torch_selftest.outcome import FAIL, PASS, SKIP, Result
from rocm_torch_selftest.runner import Setting, run_together
from rocm_torch_selftest.table import BENCH, PROBES, required_ids
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
    plain = [check for check in run.checks if not check.needs_torch]
    with ThreadPoolExecutor(max_workers=1) as beside:
        future = beside.submit(run_together, plain, run.setting)
        try:
            probes, results = _run_torch_checks(run)
            results.update(future.result())
        finally:
            run.setting.stop.set()
    ordered = [results[check.id] for check in run.checks]
    environment = environment_of(probes)
    required = run.bench.narrowed(required_ids(run.level, environment["backend"]))
    return {
        "schema": SCHEMA,
        "level": run.level,
        "cell": None if run.setting.cell is None else run.setting.cell.id,
        "summary": summary(ordered, required),
        "environment": environment,
        **({BENCH: run.bench.to_json()} if run.level == BENCH else {}),
        "checks": [result.to_json() for result in ordered],
    }


def _run_torch_checks(run: Run) -> tuple[dict[str, Result], dict[str, Result]]:
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


def _glibc() -> str | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None
    return text.split()[-1] if text else None
