"""Throughputs of several runs as an SVG bar chart. A pure function of the runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from builder.report.bench_compare import nominal_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.report.bench_results import BenchRun, Measurement

_LABEL, _BARS, _VALUE = 380, 420, 170  # widths in pixels of the three columns
_BAR, _GAP, _TOP = 14, 12, 30
_COLOURS = ("#3f6fb5", "#d0743c", "#5a9e6f", "#8a63a8", "#7a7a7a")


@dataclass(frozen=True, slots=True)
class _Bar:
    run: int
    rate: float
    text: str


def chart(runs: Sequence[BenchRun], price: float | None = None) -> str:
    """Return the chart: a group of bars for each workload, the fastest of it at full width.

    Args:
        runs: one bar each where a run has the workload.
        price: divides all throughputs, as the report's table does.
    """
    groups = _groups(runs, price)
    legend = _TOP + len(runs) * (_BAR + 4)
    height = legend + sum(len(bars) * _BAR + _GAP for bars in groups.values()) + _GAP
    width = _LABEL + _BARS + _VALUE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(10, 18, "Throughput by workload; the longest bar of each is the fastest"),
    ]
    for number, run in enumerate(runs):
        top = _TOP + number * (_BAR + 4)
        parts.append(_rectangle(10, top, 20, number))
        parts.append(_text(36, top + 10, f"{run.source}: {run.product.name}, torch {run.torch}"))
    top = legend + _GAP
    for workload, bars in groups.items():
        parts += _group(workload, bars, top)
        top += len(bars) * _BAR + _GAP
    return "\n".join([*parts, "</svg>"]) + "\n"


def _groups(runs: Sequence[BenchRun], price: float | None) -> dict[str, list[_Bar]]:
    groups: dict[str, list[_Bar]] = {}
    for number, run in enumerate(runs):
        for one in run.measurements:
            groups.setdefault(nominal_name(one), []).append(_bar(number, one, price))
    return groups


def _bar(number: int, one: Measurement, price: float | None) -> _Bar:
    rate = one.rate / price if price else one.rate
    unit = f"{one.unit} per price" if price else one.unit
    mark = "" if one.problem is None else " (not good)"
    return _Bar(number, rate, f"{rate:.4g} {unit}{mark}")


def _group(workload: str, bars: Sequence[_Bar], top: int) -> list[str]:
    best = max(bar.rate for bar in bars) or 1.0
    parts = [_text(10, top + 10, workload)]
    for place, bar in enumerate(bars):
        width, y = round(_BARS * bar.rate / best, 1), top + place * _BAR
        parts.append(_rectangle(_LABEL, y, width, bar.run))
        parts.append(_text(_LABEL + width + 6, y + 10, bar.text))
    return parts


def _rectangle(x: float, y: float, width: float, run: int) -> str:
    colour = _COLOURS[run % len(_COLOURS)]
    return f'<rect x="{x}" y="{y}" width="{width}" height="{_BAR - 3}" fill="{colour}"/>'


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x}" y="{y}">{escape(words)}</text>'
