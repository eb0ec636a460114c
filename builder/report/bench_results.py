"""Results of the self-test's level ``bench`` as values: what was measured, and on what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from builder.plan.tolerance import Samples

SELFTEST_SCHEMA = "rocm-torch/selftest/v1"
REPORT_SCHEMA = "rocm-torch/test-report/v1"
LEVEL = "bench"
NOT_COMPARED = ("startup",)  # one number a stage


@dataclass(frozen=True, slots=True)
class Product:
    """The device that was measured, as far as it decides the speed; None for what is unknown.

    Attributes:
        name: as torch says it.
        pci_id: ``vendor:device``.
        compute_units: of the device.
        memory_gib: whole GiB: drivers of one device differ in less.
        power_cap_w: the limit in watts that was set.
        partition_mode: compute and memory partition, or MIG's.
    """

    name: str
    pci_id: str | None
    compute_units: int | None
    memory_gib: int | None
    power_cap_w: float | None
    partition_mode: str | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One workload's result.

    Attributes:
        check: the check's id in the document.
        workload: the versioned id, with the batch that was run.
        rate: units a second.
        unit: of the rate.
        median_s: of all steady steps.
        samples: seconds of steady steps, a tuple for each process.
        problem: why it is not to be compared; None where it is good.
        data: the check's data as it stands in the document.
    """

    check: str
    workload: str
    rate: float
    unit: str
    median_s: float
    samples: Samples
    problem: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One document of the level.

    Attributes:
        source: where it was read.
        lineage: the cell's id; None outside of our images.
        torch: version.
        product: what it ran on.
        slowdown: the factor of the test aid, 1.0 for a run that is meant.
        measurements: in the order of the document.
        missing: (check, why) of checks without a result.
        startup: rows of the check ``startup``.
    """

    source: str
    lineage: str | None
    torch: str | None
    product: Product
    slowdown: float
    measurements: tuple[Measurement, ...]
    missing: tuple[tuple[str, str], ...]
    startup: tuple[Mapping[str, Any], ...]


def read_runs(place: Path) -> tuple[BenchRun, ...]:
    """Read a result file, or all of a folder's: several runs of one build.

    Raises:
        CouldNotError: a file cannot be read or holds something else.
    """
    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not files:
        raise _unusable(str(place), "the folder has no *.json in it")
    return tuple(_read(path) for path in files)


def _read(path: Path) -> BenchRun:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _unusable(str(path), f"it cannot be read: {error}") from error
    return parse_run(document, str(path))


def _unusable(where: str, why: str) -> CouldNotError:
    return CouldNotError(
        Problem(
            code="BENCH_RESULT_UNREADABLE",
            what=f"this is no result of the level bench: {why}",
            where=where,
            fix="give a file that `rocm-torch-selftest --level bench --output FILE` wrote",
        )
    )


def parse_run(document: Any, source: str) -> BenchRun:
    """Return the run in a document of the self-test, or in a test report around one.

    Raises:
        CouldNotError: the document is of another kind or lacks what it must have.
    """
    if isinstance(document, dict) and document.get("schema") == REPORT_SCHEMA:
        document = document.get("selftest")
    if not isinstance(document, dict) or document.get("schema") != SELFTEST_SCHEMA:
        raise _unusable(source, f"its schema is not {SELFTEST_SCHEMA}")
    if document.get("level") != LEVEL:
        raise _unusable(source, f"it is of the level {document.get('level')!r}")
    try:
        return _run(document, source)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        told = f"{type(error).__name__} at {error}"
        raise _unusable(source, f"something is missing or not as it must be ({told})") from error


def _run(document: Mapping[str, Any], source: str) -> BenchRun:
    checks, environment = document["checks"], document["environment"]
    measured: list[Measurement] = []
    missing: list[tuple[str, str]] = []
    slowdowns = [1.0]
    for check in checks:
        found = tuple(_measurements(check))
        measured += found
        slowdowns.append(float(check["data"].get("slowdown", 1.0)))
        if not found and check["id"] not in NOT_COMPARED:
            missing.append((check["id"], str(check["detail"])))
    states = [state for check in checks if (state := check["data"].get("device"))]
    startup = [row for check in checks if check["id"] == "startup" for row in _rows(check)]
    return BenchRun(
        source=source,
        lineage=document["cell"],
        torch=environment["torch"],
        product=_product(environment["devices"], states),
        slowdown=max(slowdowns),
        measurements=tuple(measured),
        missing=tuple(missing),
        startup=tuple(startup),
    )


def _product(devices: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, Any]]) -> Product:
    state: Mapping[str, Any] = states[0] if states else {}
    if not devices:
        return Product("CPU", None, None, None, None, None)
    device = devices[0]
    memory = device.get("memory_bytes")
    return Product(
        name=str(device["name"]),
        pci_id=device.get("pci_id"),
        compute_units=device.get("compute_units"),
        memory_gib=None if memory is None else round(memory / 2**30),
        power_cap_w=state.get("power_cap_w"),
        partition_mode=state.get("partition_mode"),
    )


def _rows(check: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = check["data"].get("rows", ())
    return rows


def _measurements(check: Mapping[str, Any]) -> list[Measurement]:
    data = check["data"]
    problem = None if check["status"] == "pass" else str(check["detail"])
    if "workload" in data:
        samples = tuple(tuple(map(float, one["samples_s"])) for one in data["processes"])
        rate, unit = float(data["throughput"]), str(data["unit"])
        median = float(data["median_s"])
        return [
            Measurement(check["id"], data["workload"], rate, unit, median, samples, problem, data)
        ]
    if check["id"] in NOT_COMPARED:
        return []
    return [found for row in _rows(check) if (found := _row(check["id"], row, problem))]


def _row(check: str, row: Mapping[str, Any], problem: str | None) -> Measurement | None:
    if row.get("median_s") is None:
        return None
    if "tflops" in row:
        name, rate, unit = f"gemm/{row['dtype']}/{row['size']}/v1", row["tflops"], "TFLOP/s"
    else:
        rate, unit = row["bytes_per_s"] / 1e9, "GB/s"
        name = f"bandwidth/{row['operation']}/{row['bytes']}/v1"
    samples = (tuple(map(float, row["samples_s"])),)
    return Measurement(check, name, float(rate), unit, row["median_s"], samples, problem, row)
