"""Commands ``bench compare`` and ``bench report``: what results of the level ``bench`` say."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import Annotated

import typer

from builder.cli.common import Json, answer
from builder.errors import CouldNotError, Problem
from builder.plan.tolerance import DEFAULT_TOLERANCE

_bench = typer.Typer(
    help="Compare and print results of the self-test's level bench.",
    no_args_is_help=True,
    epilog="Example: rocm-torch bench compare yesterday.json today.json",
)
_EXIT_CODES = {"pass": 0, "regression": 2, "incomplete": 3}


def register(app: typer.Typer) -> None:
    """Add the group of commands to ``app``."""
    app.add_typer(_bench, name="bench")


@_bench.command(
    epilog="Exit status: 0 no change or better, 2 a regression, 3 not comparable or incomplete. "
    "Example: rocm-torch bench compare yesterday.json today.json"
)
def compare(
    baseline: Annotated[Path, typer.Argument(help="A result, or a folder of a build's results.")],
    new: Annotated[Path, typer.Argument(help="The same of the build in question.")],
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="By which fraction the new build may be slower.")
    ] = DEFAULT_TOLERANCE,
    across_images: Annotated[
        bool, typer.Option("--across-images", help="Compare images of different lineages.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say for each workload whether the new build is slower, with the interval of the ratio."""
    from builder.report.bench_compare import compare as compare_runs
    from builder.report.bench_results import read_runs
    from builder.report.bench_table import comparison_lines

    found = compare_runs(
        read_runs(baseline), read_runs(new), tolerance, across_images=across_images
    )
    lines = comparison_lines(found)
    answer(found.to_json(), as_json=as_json, text=lambda: typer.echo("\n".join(lines)))
    raise typer.Exit(_EXIT_CODES[found.verdict])


@_bench.command(epilog="Example: rocm-torch bench report mi300x.json --price 2.5 --svg bench.svg")
def report(
    results: Annotated[list[Path], typer.Argument(help="Results, or folders of them.")],
    price: Annotated[
        float | None,
        typer.Option(min=0.000001, help="Price of the device; adds throughput per price."),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a bar chart there.")] = None,
    as_json: Json = False,
) -> None:
    """Print the results as tables, and draw them."""
    from builder.report.bench_chart import chart
    from builder.report.bench_results import read_runs
    from builder.report.bench_table import report_document, report_lines

    runs = [run for place in results for run in read_runs(place)]
    if svg is not None:
        _write(svg, chart(runs, price))
    lines = report_lines(runs, price)
    document = report_document(runs, price)
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        problem = Problem("NOT_WRITABLE", f"the chart cannot be written: {error}", where=str(path))
        raise CouldNotError(problem) from error
