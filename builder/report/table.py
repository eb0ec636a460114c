"""The table at the end of a release, and the line to run next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from builder.host.run import RunRequest, plan_run, render_plan
from builder.host.snapshot import read_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.errors import RocmTorchError
    from builder.report.records import BuildRecord, PublishRecord, SbomRecord, TestRecord


class CellOutcome(Protocol):
    """What a release knows of one cell when it ends."""

    cell: str
    tags: tuple[str, ...]
    build: BuildRecord | None
    tests: tuple[TestRecord, ...]
    sbom: SbomRecord | None
    publish: PublishRecord | None
    error: RocmTorchError | None

    @property
    def verdict(self) -> str:
        """The worst verdict of the tests."""
        ...


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the table: sizes in bytes, seconds by step, None for a step not reached."""

    cell: str
    digest: str | None
    tags: tuple[str, ...]
    size: int | None
    packages: int | None
    verdict: str
    seconds: tuple[tuple[str, float], ...]
    error: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return {
            "cell": self.cell,
            "digest": self.digest,
            "tags": list(self.tags),
            "size": self.size,
            "packages": self.packages,
            "verdict": self.verdict,
            "seconds": dict(self.seconds),
            "error": self.error,
        }


def row_of(outcome: CellOutcome) -> Row:
    """Return the row of one cell, from its records."""
    steps = (outcome.build, *outcome.tests, outcome.sbom, outcome.publish)
    return Row(
        cell=outcome.cell,
        digest=outcome.build.digest if outcome.build else None,
        tags=outcome.tags,
        size=outcome.build.size if outcome.build else None,
        packages=outcome.sbom.packages if outcome.sbom else None,
        verdict=outcome.verdict,
        seconds=tuple((step.step, step.seconds) for step in steps if step is not None),
        error=outcome.error.problems[0].code if outcome.error else None,
    )


def run_line(image: str, rows: Sequence[Row], device_root: Path) -> str | None:
    """Return the ``docker run`` line for the first released cell on this host, or None."""
    released = [row for row in rows if row.tags]
    if not released:
        return None
    request = RunRequest(f"{image}:{released[0].tags[-1]}", ("python",))
    return render_plan(plan_run(read_snapshot(device_root), request)).text.rstrip("\n")


FIELDS = ("cell", "digest", "tags", "size", "packages", "verdict", "seconds")


def lines_of(rows: Sequence[Row], line: str | None) -> list[str]:
    """Return the table as lines, and the line to run next.

    One field a line, so that a digest fits on a terminal of 80 columns and can be copied whole.
    """
    width = max(len(name) for name in FIELDS)
    lines: list[str] = []
    for row in rows:
        for name, value in zip(FIELDS, _values(row), strict=True):
            first, *others = value.split("\n")
            lines += [f"{name:<{width}} {first}", *(f"{'':<{width}} {other}" for other in others)]
        lines.append("")
    return [*lines, "Run it:", f"  {line}"] if line else lines


def _values(row: Row) -> tuple[str, ...]:
    return (
        row.cell,
        row.digest or "-",
        "\n".join(row.tags) or "-",
        f"{row.size / 1e6:.0f} MB compressed" if row.size else "-",
        str(row.packages) if row.packages is not None else "-",
        f"{row.verdict} ({row.error})" if row.error else row.verdict,
        ", ".join(f"{step} {seconds:.1f}" for step, seconds in row.seconds) or "-",
    )
