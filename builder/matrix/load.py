"""The one entry from the text of matrix.yaml to cells and tags, with all problems told at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from builder.errors import Problem, RefusedError
from builder.matrix.checks import check, duplicates, tie_problems, too_many
from builder.matrix.expand import expand
from builder.matrix.problems import parse_source
from builder.matrix.source import decode, read_document
from builder.matrix.tags import resolve_owners, tags_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.facts import Facts
    from builder.matrix.cells import Cell
    from builder.matrix.document import Document
    from builder.matrix.expand import Excluded, Warned
    from builder.matrix.schema import MatrixSource


@dataclass(frozen=True, slots=True)
class Matrix:
    """A valid matrix, expanded.

    Attributes:
        source: the file as data.
        cells: all cells, the newest first.
        excluded: the combinations that are not built, with reasons.
        warnings: cells that an inferred fact speaks against.
        tags: the owner of each moving tag.
    """

    source: MatrixSource
    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]
    warnings: tuple[Warned, ...] = ()
    tags: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def image(self) -> str:
        """Return the repository without the registry: ``ourorg/rocm-torch``."""
        return self.source.image

    @property
    def registry(self) -> str:
        """Return the registry that images are published to."""
        return self.source.registry

    @property
    def lanes(self) -> tuple[str, ...]:
        """Return the names of the lanes."""
        return tuple(self.source.lanes)

    def tags_of(self, cell: Cell) -> tuple[str, ...]:
        """Return the moving tags that a cell owns, from the most exact to the widest."""
        return tags_of(cell, self.tags)

    def references_of(self, cell: Cell) -> tuple[str, ...]:
        """Return the same with registry and repository: ``docker.io/ourorg/rocm-torch:cpu``."""
        return tuple(f"{self.registry}/{self.image}:{tag}" for tag in self.tags_of(cell))


def load_matrix(text: str | bytes, name: str, facts: Facts) -> Matrix:
    """Read, check and expand a matrix.

    Args:
        text: the content of the file; bytes must be UTF-8.
        name: what problems call the file, as the user gave it.
        facts: what is true of distributions, torch and base families.

    Raises:
        RefusedError: the matrix is not valid; every problem found is in it, by line.
    """
    document, problems = read_document(text if isinstance(text, str) else decode(text, name), name)
    source, found = parse_source(document)
    problems += found
    matrix: Matrix | None = None
    if source is not None:
        matrix, found = _expanded(source, facts, document)
        problems += found
    if problems or matrix is None:
        raise RefusedError(sorted(dict.fromkeys(problems), key=_line))
    return matrix


def read_matrix(path: Path, name: str, facts: Facts) -> Matrix:
    """Read the file at ``path`` and load it; ``RefusedError`` where there is none to read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise RefusedError(
            Problem(
                "NO_MATRIX" if missing else "UNREADABLE_MATRIX",
                "There is no such file." if missing else f"Not readable: {error.strerror}.",
                where=name,
                fix="Run in the folder that holds matrix.yaml, or name the file with --matrix.",
            )
        ) from None
    return load_matrix(content, name, facts)


def _expanded(
    source: MatrixSource, facts: Facts, document: Document
) -> tuple[Matrix | None, list[Problem]]:
    where = document.where
    beyond = too_many(source, where)
    if beyond:
        return None, [beyond]
    problems = check(source, facts, where)
    expansion = expand(source, facts)
    problems += duplicates(expansion.cells, where)
    unique = {cell.id: cell for cell in reversed(expansion.cells)}
    owners = resolve_owners(cell for cell in expansion.cells if unique[cell.id] is cell)
    problems += tie_problems(owners.ties, where)
    return (
        Matrix(source, expansion.cells, expansion.excluded, expansion.warnings, owners.tags),
        problems,
    )


def _line(problem: Problem) -> int:
    number = (problem.where or "").rpartition(":")[2]
    return int(number) if number.isdecimal() else 0
