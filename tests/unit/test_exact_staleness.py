"""A change makes exactly those cells stale that it touches: on the matrix, templates and facts."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from samples import LOCKED, ROOT
from test_pipeline_steps import session as session_of

from builder.matrix.lock import Lock
from builder.plan.staleness import Built, build_reasons

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.matrix.cells import Cell
    from builder.pipeline.session import Session

TEMPLATES = sorted(
    path.relative_to(ROOT / "templates").as_posix() for path in (ROOT / "templates").rglob("*.j2")
)
MARK = "ENV STALE_TEST=1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of what decides our images, with every cell locked."""
    ignore = shutil.ignore_patterns("__pycache__", ".*_cache")
    for part in ("templates", "images/rootfs", "images/selftest"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=ignore)
    shutil.copytree(ROOT / "builder/facts/data", tmp_path / "facts")
    shutil.copy(ROOT / "matrix.yaml", tmp_path / "matrix.yaml")
    cells = cells_of(opened(tmp_path))
    lock = Lock().with_cells({cell.id: LOCKED for cell in cells})
    (tmp_path / "matrix.lock").write_text(lock.to_text(), "utf-8")
    return tmp_path


def cells_of(session: Session) -> tuple[Cell, ...]:
    """Return the cells of the families that there are templates for."""
    cells = session.matrix.cells
    return tuple(one for one in cells if f"{one.base.family}.Dockerfile.j2" in TEMPLATES)


def opened(root: Path) -> Session:
    # Facts are read once a process and folder: each state gets a folder of its own.
    folder = root / f"facts-{len(list(root.glob('facts-*')))}"
    shutil.copytree(root / "facts", folder)
    session = replace(session_of(root), facts_folder=folder)
    for cell in cells_of(session):  # what is there now counts, whatever changes later
        assert session.context(cell)
        assert session.sources(cell)
    assert session.folders
    assert session.lock is not None
    return session


def stale(before: Session, after: Session) -> dict[str, tuple[str, ...]]:
    """Return the cells that a build would make differently, with the reasons of the plan."""
    found = {}
    for cell in cells_of(after):
        then = before.job(before.cell(cell.id))
        built = Built(then.inputs, before.sources(then.cell), present=True)
        reasons = build_reasons(after.job(cell).inputs, built, sources=after.sources(cell))
        if reasons:
            found[cell.id] = reasons
    return found


def change_yaml(path: Path, change: Callable[[Any], None]) -> None:
    document = yaml.safe_load(path.read_text("utf-8"))
    change(document)
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")


def test_nothing_is_stale_where_nothing_changed(root: Path) -> None:
    assert stale(opened(root), opened(root)) == {}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_makes_those_cells_stale_whose_dockerfile_it_writes(
    root: Path, name: str
) -> None:
    before = opened(root)
    path = root / "templates" / name
    text = path.read_text("utf-8")
    if "endmacro" in text:
        text = text.replace("{%- endmacro %}", f"\n{MARK}\n{{%- endmacro %}}")
    else:
        text += f"{MARK}\n"
    path.write_text(text, "utf-8")
    after = opened(root)
    marked = {
        cell.id for cell in cells_of(after) if MARK in after.context(cell)["Dockerfile"].decode()
    }
    found = stale(before, after)
    assert set(found) == marked
    assert all(reasons == (f"template {name} changed",) for reasons in found.values())
    reads = {cell.id for cell in cells_of(after) if name in after.sources(cell)}
    assert marked <= reads
    if name.endswith(".Dockerfile.j2"):
        assert marked == reads


@pytest.mark.parametrize("number", range(2))
def test_a_package_of_one_distribution_makes_its_cells_stale_and_no_other(
    root: Path, number: int
) -> None:
    before = opened(root)
    one = sorted({cell.distro for cell in cells_of(before) if cell.base.family == "distro"})[number]

    def change(builds: list[dict[str, Any]]) -> None:
        for build in builds:
            if build["distro"] == one:
                build["packages"].append("stale-test")

    change_yaml(root / "facts/distro_torch.yaml", change)
    touched = {
        cell.id for cell in cells_of(before) if cell.base.family == "distro" and cell.distro == one
    }
    assert touched
    assert set(stale(before, opened(root))) == touched < {c.id for c in cells_of(before)}


def test_the_targets_of_one_lane_make_its_cells_stale_and_its_purpose_none(root: Path) -> None:
    before = opened(root)
    lane = cells_of(before)[0].lane

    def describe(document: dict[str, Any]) -> None:
        document["lanes"][lane]["purpose"] = "another sentence"

    change_yaml(root / "matrix.yaml", describe)
    assert stale(before, opened(root)) == {}

    def aim(document: dict[str, Any]) -> None:
        document["lanes"][lane]["gfx"] = ["gfx942"]

    change_yaml(root / "matrix.yaml", aim)
    touched = {
        cell.id for cell in cells_of(before) if cell.lane == lane and cell.gfx != ("gfx942",)
    }
    assert touched
    assert set(stale(before, opened(root))) == touched


def test_a_policy_changes_what_must_pass_and_not_what_is_built(root: Path) -> None:
    before = opened(root)

    def demand(document: dict[str, Any]) -> None:
        for lane in document["lanes"].values():
            lane["policy"] = {"levels": ["smoke"], "size_budget": "5 GiB"}

    change_yaml(root / "matrix.yaml", demand)
    assert stale(before, opened(root)) == {}


def test_one_entry_of_the_lock_makes_one_cell_stale(root: Path) -> None:
    before = opened(root)
    one = cells_of(before)[0].id
    lock = before.lock.with_cells({one: replace(LOCKED, epoch=LOCKED.epoch + 1)})
    (root / "matrix.lock").write_text(lock.to_text(), "utf-8")
    assert stale(before, opened(root)) == {one: ("epoch changed",)}
