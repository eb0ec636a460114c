"""Bench results as tables for people and as one document for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from builder.plan.tolerance import two_modes
from builder.report.bench_article import FIGURES, LABEL, article_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.report.bench_compare import Comparison
    from builder.report.bench_results import BenchRun, Measurement

SCHEMA = "rocm-torch/bench-report/v1"
_GIB = 2**30


def report_document(runs: Sequence[BenchRun], price: float | None) -> dict[str, Any]:
    """Return the document of a report; ``price`` is of one hour, or of the device, as you like."""
    return {
        "schema": SCHEMA,
        "price": price,
        "runs": [_run_json(run, price) for run in runs],
        "article": {
            "label": LABEL,
            "figures": {model: list(figures) for model, figures in FIGURES.items()},
        },
    }


def _run_json(run: BenchRun, price: float | None) -> dict[str, Any]:
    return {
        "source": run.source,
        "lineage": run.lineage,
        "torch": run.torch,
        "product": asdict(run.product),
        "slowdown": run.slowdown,
        "results": [_result_json(one, price) for one in run.measurements],
        "missing": [{"check": check, "why": why} for check, why in run.missing],
        "startup": [dict(row) for row in run.startup],
    }


def _result_json(one: Measurement, price: float | None) -> dict[str, Any]:
    return {
        "workload": one.workload,
        "throughput": one.rate,
        "unit": one.unit,
        "median_s": one.median_s,
        "interval_fraction": one.data.get("interval_fraction"),
        "processes": len(one.samples),
        "modes_s": list(two_modes(tuple(time for part in one.samples for time in part))),
        "throughput_per_price": one.rate / price if price else None,
        "memory": one.data.get("memory"),
        "problem": one.problem,
    }


def report_lines(runs: Sequence[BenchRun], price: float | None) -> list[str]:
    """Return the tables, one a run, and what the article says, marked as what it is."""
    lines: list[str] = []
    for run in runs:
        lines += [*_head(run), *_table(_rows(run, price)), *_memory(run), *_tail(run), ""]
    return [*lines, "the article's figures, never to be compared with:", *article_lines()]


def _head(run: BenchRun) -> list[str]:
    product = run.product
    known = [
        product.pci_id,
        f"{product.compute_units} CUs" if product.compute_units else None,
        f"{product.memory_gib} GiB" if product.memory_gib else None,
        f"{product.power_cap_w:g} W cap" if product.power_cap_w else None,
        product.partition_mode,
    ]
    lines = [
        run.source,
        f"{product.name} ({', '.join(text for text in known if text) or 'nothing more known'}), "
        f"image {run.lineage or 'none of ours'}, torch {run.torch}",
    ]
    if run.slowdown > 1.0:
        lines.append(f"slowed on purpose by a factor of {run.slowdown:g}: no real result")
    return lines


def _rows(run: BenchRun, price: float | None) -> list[tuple[str, ...]]:
    head = ("WORKLOAD", "THROUGHPUT", "STEP", "INTERVAL", "PROCESSES", "MODES")
    rows: list[tuple[str, ...]] = [(*head, "PER PRICE") if price else head]
    for one in run.measurements:
        found = _result_json(one, price)
        width = found["interval_fraction"]
        row = (
            one.workload,
            f"{one.rate:.5g} {one.unit}",
            f"{1000 * one.median_s:.4g} ms",
            "-" if width is None else f"{width:.1%}",
            str(found["processes"]),
            " / ".join(f"{1000 * mode:.4g}" for mode in found["modes_s"]),
        )
        rows.append((*row, f"{one.rate / price:.4g}") if price else row)
    return rows


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _memory(run: BenchRun) -> list[str]:
    names = ("allocated_peak", "reserved_peak", "device_used")
    rows: list[tuple[str, ...]] = [("MEMORY, GiB", "ALLOCATED", "RESERVED", "DEVICE")]
    rows += [
        (one.check, *(f"{memory[name] / _GIB:.2f}" for name in names))
        for one in run.measurements
        if (memory := one.data.get("memory"))
    ]
    return _table(rows) if len(rows) > 1 else []


def _tail(run: BenchRun) -> list[str]:
    lines = [f"startup, {row['stage']}: {row['seconds']:.2f} s" for row in run.startup]
    lines += [f"not good: {one.workload}: {one.problem}" for one in run.measurements if one.problem]
    return [*lines, *(f"no result: {check}: {why}" for check, why in run.missing)]


def comparison_lines(found: Comparison) -> list[str]:
    """Return a comparison, one line a workload, the verdict last."""
    lines = [f"not comparable: {text}" for text in found.refusals]
    for pair in found.pairs:
        told = pair.judgement.detail if pair.judgement else pair.problem
        lines.append(f"{pair.code:<15} {pair.workload}: {told}")
        lines += [f"{'':<15}   differs: {note}" for note in pair.notes]
    return [*lines, f"verdict: {found.verdict} (tolerance {found.tolerance:.0%})"]
