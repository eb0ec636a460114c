"""Step ci: the plan of a pipeline as a file, and the pipelines themselves, written or compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from builder.errors import CouldNotError, Problem
from builder.pipeline.tagging import image_labels
from builder.plan.ci.chunks import CiPlan, chunked, ci_cell
from builder.plan.ci.pipelines import github, gitlab, gitlab_child
from builder.report.records import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from builder.engines.registry import Registry
    from builder.matrix.cells import Cell
    from builder.pipeline.session import Session

_ASKING = 8
_EMPTY_CHILD = "nothing-to-do:\n  script: 'true'\n"


def plan_pipeline(session: Session, cells: Sequence[Cell], *, chunk: int | None = None) -> CiPlan:
    """Return what a pipeline does for ``cells``; those that are not locked are named and left out.

    Args:
        session: the run.
        cells: the selected cells.
        chunk: cells a chunk; as the matrix says by default.

    Raises:
        BadCallError: ``CHUNK_TOO_LARGE``.
    """
    settings = session.matrix.source.ci
    locked = [cell for cell in cells if session.locked(cell) is not None]
    unlocked = sorted(cell.id for cell in cells if session.locked(cell) is None)
    listed = (ci_cell(cell, settings.runners) for cell in locked)
    size = settings.chunk if chunk is None else chunk
    return CiPlan(chunked(listed, size), tuple(unlocked))


def unpublished(session: Session, cells: Sequence[Cell], registry: Registry) -> tuple[Cell, ...]:
    """Return the cells that a registry does not have as this working copy would make them.

    A cell is there where all its moving tags name one image, and that was built from its inputs.
    A machine without records knows by this what there is to do. Cells without a lock stay in.
    """

    def is_there(cell: Cell) -> bool:
        if session.locked(cell) is None:
            return False
        repository = session.matrix.image
        heads = [registry.head(repository, tag) for tag in session.matrix.tags_of(cell)]
        digests = {head.digest if head else None for head in heads}
        digest = digests.pop() if len(digests) == 1 else None
        if digest is None:
            return False
        labels = image_labels(registry, repository, digest)
        return labels.get("io.rocm-torch.inputs") == session.job(cell).inputs.digest

    with ThreadPoolExecutor(max_workers=_ASKING) as pool:
        found = list(pool.map(is_there, cells))
    return tuple(cell for cell, there in zip(cells, found, strict=True) if not there)


def read_plan(path: Path) -> CiPlan:
    """Read a plan file.

    Raises:
        CouldNotError: ``CI_PLAN_MISSING``.
        RefusedError: ``CI_PLAN_DAMAGED``.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CouldNotError(
            Problem(
                "CI_PLAN_MISSING",
                f"The plan cannot be read: {error.strerror}.",
                where=str(path),
                fix="make it: rocm-torch ci plan --plan-file FILE",
            )
        ) from error
    return CiPlan.from_text(content, str(path))


def github_files(session: Session) -> dict[str, str]:
    """Return the workflows of GitHub by path below the working copy."""
    source = session.matrix.source
    signed = any(lane.policy.signed for lane in source.lanes.values())
    return github(source.ci.build_runner, source.registry, signed=signed)


def gitlab_files(session: Session) -> dict[str, str]:
    """Return the pipeline of GitLab by path below the working copy."""
    return gitlab(_most_chunks(session))


def gitlab_children(session: Session, plan: CiPlan) -> dict[str, str]:
    """Return the child pipelines of a plan by file name, one for each chunk the parent names."""
    source = session.matrix.source
    found = {
        f"{number}.yml": gitlab_child(number, cells, source.ci.build_runner, source.registry)
        for number, cells in enumerate(plan.chunks)
    }
    empty = range(len(plan.chunks), _most_chunks(session))
    return found | {f"{number}.yml": _EMPTY_CHILD for number in empty}


def write(root: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Write files below ``root`` and return the paths that changed."""
    changed = differing(root, texts)
    for name in changed:
        atomic_write(root / name, texts[name].encode())
    return changed


def differing(root: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths below ``root`` whose files are missing or have another text."""
    return tuple(
        name
        for name, text in texts.items()
        if not (root / name).is_file() or (root / name).read_bytes() != text.encode()
    )


def _most_chunks(session: Session) -> int:
    size = session.matrix.source.ci.chunk
    return -(-len(session.matrix.cells) // size)
