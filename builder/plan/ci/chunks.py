"""Cells in chunks: each becomes one matrix of jobs, small enough for what a CI can take.

Limits, each with its source:
    256 jobs a matrix on GitHub (docs.github.com, "Running variations of jobs in a workflow"), 200
    in a `parallel:matrix` of GitLab; 1,048,576 bytes of outputs a job on GitHub; 131,072 bytes for
    one string of argv or the environment on Linux (MAX_ARG_STRLEN, execve(2)).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from builder.errors import BadCallError, Problem, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from builder.matrix.cells import Cell

SCHEMA = "rocm-torch/ci-plan/v1"
MAX_JOBS = 256
DEFAULT_CHUNK = 200
MAX_OUTPUT_BYTES = 900_000
MAX_ENV_BYTES = 131_072
GPU_LEVELS = frozenset({"gpu", "bench"})


@dataclass(frozen=True, slots=True)
class CiCell:
    """What CI does for one cell.

    Attributes:
        id: of the cell.
        gfx: the GPU target that it is tested on; ``None`` where no GPU test is required, or where
            no machine is known for any of its targets.
        runner: labels of the machine with that GPU.
        levels: the levels that need no GPU, run where the image was built.
        gpu_levels: the levels that need one.
    """

    id: str
    gfx: str | None = None
    runner: tuple[str, ...] = ()
    levels: tuple[str, ...] = ("smoke",)
    gpu_levels: tuple[str, ...] = ()

    @property
    def untested(self) -> bool:
        """Tell whether a required GPU test has no machine to run on."""
        return bool(self.gpu_levels) and self.gfx is None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        return cls(
            str(value["id"]),
            value["gfx"],
            tuple(value["runner"]),
            tuple(value["levels"]),
            tuple(value["gpu_levels"]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "id": self.id,
            "gfx": self.gfx,
            "runner": list(self.runner),
            "levels": list(self.levels),
            "gpu_levels": list(self.gpu_levels),
        }


@dataclass(frozen=True, slots=True)
class CiPlan:
    """All that a pipeline does: the chunks, and cells that are left out for want of a lock."""

    chunks: tuple[tuple[CiCell, ...], ...]
    unlocked: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[CiCell, ...]:
        """Return the cells of all chunks."""
        return tuple(cell for chunk in self.chunks for cell in chunk)

    def chunk(self, number: int) -> tuple[CiCell, ...]:
        """Return one chunk; ``BadCallError`` where there is no such number."""
        if not 0 <= number < len(self.chunks):
            raise BadCallError(
                Problem(
                    "NO_SUCH_CHUNK",
                    f"The plan has no chunk {number}.",
                    fix=f"Its chunks are numbered from 0 to {len(self.chunks) - 1}."
                    if self.chunks
                    else "It has no chunk at all: nothing is to be done.",
                )
            )
        return self.chunks[number]

    @classmethod
    def from_text(cls, text: str | bytes, name: str) -> Self:
        """Read the text of the plan file ``name``; ``RefusedError`` where it is none."""
        try:
            document = json.loads(text)
            if document["schema"] != SCHEMA:
                raise ValueError(f"its schema is {document['schema']!r}")
            chunks = tuple(
                tuple(CiCell.from_json(cell) for cell in chunk["cells"])
                for chunk in document["chunks"]
            )
            return cls(chunks, tuple(document["unlocked"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RefusedError(
                Problem(
                    "CI_PLAN_DAMAGED",
                    f"This is no plan of a pipeline that we can read: {error}",
                    where=name,
                    fix="make it again: rocm-torch ci plan --plan-file FILE",
                )
            ) from error

    def to_text(self) -> str:
        """Return the text form, which is handed over as a file."""
        document = {
            "schema": SCHEMA,
            "chunks": [
                {"number": number, "cells": [cell.to_json() for cell in chunk]}
                for number, chunk in enumerate(self.chunks)
            ],
            "unlocked": list(self.unlocked),
            "untested": [cell.id for cell in self.cells if cell.untested],
        }
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def ci_cell(cell: Cell, runners: Mapping[str, Sequence[str]]) -> CiCell:
    """Return what CI does for ``cell``.

    Its GPU test runs on one target, the first of the cell's that a machine is known for: a test
    report is attached to the image, and the referrers of an image have one writer at a time.
    """
    levels = cell.policy.levels
    gpu_levels = tuple(level for level in levels if level in GPU_LEVELS)
    gfx = next((name for name in cell.gfx if name in runners), None) if gpu_levels else None
    runner = tuple(runners[gfx]) if gfx else ()
    others = tuple(level for level in levels if level not in GPU_LEVELS)
    return CiCell(cell.id, gfx, runner, others, gpu_levels)


def chunked(cells: Iterable[CiCell], size: int = DEFAULT_CHUNK) -> tuple[tuple[CiCell, ...], ...]:
    """Return the cells sorted by id and cut into chunks, whatever order they came in.

    Args:
        cells: each id once.
        size: cells a chunk at most; a matrix has as many jobs at most as its chunk has cells.

    Raises:
        BadCallError: ``CHUNK_TOO_LARGE``, for a size that no matrix may have.
    """
    if not 1 <= size <= MAX_JOBS:
        raise BadCallError(
            Problem(
                "CHUNK_TOO_LARGE",
                f"A chunk of {size} cells cannot be one matrix of jobs.",
                why=f"GitHub takes {MAX_JOBS} jobs a matrix at most.",
                fix=f"Write a size from 1 to {MAX_JOBS}; {DEFAULT_CHUNK} is the usual one.",
            )
        )
    ordered = sorted(cells, key=lambda cell: cell.id)
    return tuple(tuple(ordered[start : start + size]) for start in range(0, len(ordered), size))


def chunk_numbers(plan: CiPlan) -> dict[str, str]:
    """Return the outputs of the job that plans: the numbers of the chunks, as JSON."""
    return _outputs({"chunks": list(range(len(plan.chunks)))})


def chunk_outputs(cells: Iterable[CiCell]) -> dict[str, str]:
    """Return the outputs of the job that opens a chunk: ids and machines, nothing more.

    ``build`` has a row a cell; ``gpu`` a row for each cell that a machine with a GPU tests. The
    keys of the rows are what the generated workflow reads as ``matrix.<key>``.
    """
    listed = tuple(cells)
    build = [{"cell": cell.id} for cell in listed]
    gpu = [
        {"cell": cell.id, "gfx": cell.gfx, "runner": list(cell.runner)}
        for cell in listed
        if cell.gfx
    ]
    return _outputs({"build": build, "gpu": gpu})


def as_variable(name: str, plan: CiPlan) -> str:
    """Return ``NAME=JSON`` for the environment, where a plan is small enough for one.

    Raises:
        RefusedError: ``PLAN_TOO_LARGE_FOR_ENV``.
    """
    line = f"{name}={json.dumps(json.loads(plan.to_text()), separators=(',', ':'))}"
    size = len(line.encode()) + 1  # with the zero byte that ends it
    if size > MAX_ENV_BYTES:
        raise RefusedError(
            Problem(
                "PLAN_TOO_LARGE_FOR_ENV",
                f"The plan of {len(plan.cells)} cells needs {size} bytes as an environment "
                f"variable, and one may have {MAX_ENV_BYTES}.",
                why="Linux refuses to start a program with a longer string in its arguments or "
                'environment ("Argument list too long").',
                fix="hand the plan over as a file: rocm-torch ci plan --plan-file plan.json",
            )
        )
    return line


def _outputs(values: Mapping[str, object]) -> dict[str, str]:
    found = {name: json.dumps(value, separators=(",", ":")) for name, value in values.items()}
    size = sum(len(name) + 1 + len(text.encode()) + 1 for name, text in found.items())
    if size > MAX_OUTPUT_BYTES:
        raise RefusedError(
            Problem(
                "CI_OUTPUT_TOO_LARGE",
                f"The outputs {', '.join(found)} have {size} bytes, and {MAX_OUTPUT_BYTES} are "
                "written at most.",
                why="GitHub drops outputs of a job beyond 1,048,576 bytes.",
                fix="use smaller chunks: rocm-torch ci plan --chunk 100",
            )
        )
    return found
