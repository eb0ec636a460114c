from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from samples import CELL, LOCKED, OURS, cell, project

from builder.engines.process import Command, ProcessRunner
from builder.errors import CouldNotError, Problem, RefusedError
from builder.oci import Digest
from builder.pipeline.chains import Chain, Task, run_chains
from builder.pipeline.preflight import Room, room_at, too_small
from builder.pipeline.render import Drift, drift, render
from builder.pipeline.scheduler import Needs, Slots
from builder.pipeline.session import Session
from builder.pipeline.workspace import Tools, Workspace
from builder.plan.inputs import Inputs
from builder.report.progress import Silent
from builder.report.records import BuildRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.errors import RocmTorchError
    from builder.matrix.cells import Cell

GIB = 1 << 30


def session(root: Path) -> Session:
    ticks = itertools.count()
    tools = Tools(
        ProcessRunner(),
        now=lambda: datetime(2026, 12, 1, tzinfo=UTC),
        clock=lambda: float(next(ticks)),
        progress=Silent(),
    )
    return Session(Workspace(root), tools, root / "matrix.lock", root / "matrix.yaml")


@pytest.fixture
def ours(tmp_path: Path) -> Session:
    return session(project(tmp_path))


def refused(one: Session) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        one.job(CELL)
    return caught.value


def test_everything_of_a_run_lies_below_its_root(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    digest = Digest.of(b"x")
    paths = (
        workspace.layout,
        workspace.log("cell", "build"),
        workspace.evidence(digest),
        workspace.exports,
    )
    assert all(path.is_relative_to(workspace.state) for path in paths)
    assert workspace.state.parent == tmp_path
    assert workspace.context("cell") == tmp_path / "images" / "cell"
    assert len({workspace.evidence(digest), workspace.evidence(Digest.of(b"y"))}) == 2


def test_a_job_has_all_that_a_build_depends_on(ours: Session) -> None:
    job = ours.job(ours.matrix.cells[0])
    assert job.cell.id == OURS[0]
    assert job.locked == LOCKED
    assert set(job.context) == {"Dockerfile", "cell.json"}
    assert job.inputs == Inputs.of(context=job.context, assets=ours.assets, locked=LOCKED)
    assert job.inputs == session(ours.workspace.root).job(job.cell).inputs


def test_the_place_of_a_working_copy_does_not_change_its_inputs(tmp_path: Path) -> None:
    one, other = (session(project(tmp_path / name)) for name in ("a", "b/c"))
    assert one.job(one.matrix.cells[0]).inputs == other.job(other.matrix.cells[0]).inputs


def test_a_cell_that_is_not_locked_is_refused(tmp_path: Path) -> None:
    problem = refused(session(project(tmp_path, locked=False))).problems[0]
    assert (problem.code, problem.where) == ("UNLOCKED", "matrix.lock")
    assert CELL.id in (problem.fix or "")


def test_a_lock_that_is_no_text_is_refused(ours: Session) -> None:
    ours.lock_file.write_bytes(b"\xff\xfe")
    assert refused(ours).problems[0].code == "LOCK_DAMAGED"


def test_a_working_copy_without_templates_is_refused(tmp_path: Path) -> None:
    root = project(tmp_path)
    for path in (root / "templates").rglob("*.j2"):
        path.unlink()
    assert refused(session(root)).problems[0].code == "TEMPLATES_MISSING"


def test_what_was_built_is_read_from_its_record(ours: Session) -> None:
    assert ours.built(CELL) is None
    record = BuildRecord(
        cell=CELL.id,
        step="build",
        finished=ours.tools.now(),
        seconds=1,
        digest=LOCKED.base,
        inputs={},
        size=1,
    )
    ours.workspace.records.write(record)
    assert ours.built(CELL) == record


def test_committed_contexts_have_no_drift_and_rendering_changes_nothing(ours: Session) -> None:
    cells = ours.matrix.cells
    assert drift(ours, cells, whole=True) == ()
    assert render(ours, cells) == ()


def test_drift_names_what_is_missing_different_and_left_over(ours: Session) -> None:
    images, cells = ours.workspace.images, ours.matrix.cells
    (images / OURS[0] / "Dockerfile").write_text("FROM else\n")
    (images / OURS[1] / "cell.json").unlink()
    (images / "cpu-torch1.0.0-py39-debian11").mkdir()
    found = drift(ours, cells, whole=True)
    assert set(found) == {
        Drift(f"images/{OURS[0]}/Dockerfile", "differs"),
        Drift(f"images/{OURS[1]}/cell.json", "missing"),
        Drift("images/cpu-torch1.0.0-py39-debian11", "left over"),
    }
    assert {one.state for one in drift(ours, cells, whole=False)} == {"differs", "missing"}
    changed = render(ours, cells)
    assert set(changed) == {f"images/{OURS[0]}/Dockerfile", f"images/{OURS[1]}/cell.json"}
    assert {one.state for one in drift(ours, cells, whole=True)} == {"left over"}


def test_drift_of_a_copy_without_images_is_that_all_is_missing(ours: Session) -> None:
    elsewhere = replace(ours, workspace=Workspace(ours.workspace.root))
    ours.workspace.images.rename(ours.workspace.root / "gone")
    found = drift(elsewhere, ours.matrix.cells, whole=True)
    assert {one.state for one in found} == {"missing"}


def one_byte_less(room: Room) -> Room:
    return replace(room, bytes=room.bytes - 1)


def needs(cells: list[Cell]) -> Room:
    """Return the least room in which ``cells`` fit, found without knowing how it is computed."""
    low, high = 0, 1 << 50
    while low < high:
        middle = (low + high) // 2
        fits = too_small(Room(Path("/x"), middle, None), cells) is None
        low, high = (low, middle) if fits else (middle + 1, high)
    return Room(Path("/x"), low, None)


def test_room_is_enough_to_the_byte() -> None:
    room = needs([cell(unpacked_bytes=GIB)])
    assert room.bytes >= GIB
    problem = too_small(one_byte_less(room), [cell(unpacked_bytes=GIB)])
    assert problem is not None
    assert (problem.code, problem.where) == ("DISK_TOO_SMALL", "/x")


def test_two_cells_need_twice_the_room_and_unknown_ones_the_most() -> None:
    one = cell(unpacked_bytes=GIB)
    assert needs([one, one]).bytes == 2 * needs([one]).bytes
    assert needs([cell(unpacked_bytes=None)]).bytes > 10 * needs([one]).bytes


def test_inodes_count_where_the_file_system_has_a_number_of_them() -> None:
    one = cell(unpacked_bytes=1)
    problem = too_small(Room(Path("/x"), 1 << 50, 1), [one])
    assert problem is not None
    assert problem.code == "INODES_TOO_FEW"
    assert too_small(Room(Path("/x"), 1 << 50, 1 << 40), [one]) is None
    assert too_small(Room(Path("/x"), 1 << 50, None), [one]) is None


def test_nothing_to_build_fits_everywhere() -> None:
    assert too_small(Room(Path("/x"), 0, 0), []) is None


def test_room_is_seen_where_there_is_a_folder_and_nowhere_else(tmp_path: Path) -> None:
    room = room_at(tmp_path)
    assert room is not None
    assert room.bytes > 0
    assert room_at(tmp_path / "not-there") is None


def chains(act: Callable[[str], None]) -> tuple[Chain, ...]:
    """Return one chain of one step for each cell."""
    needs = Needs(cpu=1)
    return tuple(Chain(name, (Task("build", needs, partial(act, name)),)) for name in OURS)


def run(one: Session, act: Callable[[str], None]) -> list[str]:
    """Run both chains on two cores, and return the cells that failed."""
    failed: list[str] = []

    def heard(cell: str, step: str, error: RocmTorchError) -> None:
        failed.append(cell)

    slots = Slots(cpu=2, disk=2, network=2)
    run_chains(chains(act), slots, one.tools, failed=heard, sweep=lambda: None)
    return failed


def test_cells_run_at_once(ours: Session) -> None:
    both = threading.Barrier(2, timeout=30)
    assert run(ours, lambda _: void(both.wait())) == []


def void(_: object) -> None:
    """Take a value and drop it."""


def test_a_cell_that_fails_leaves_the_other_one_going(ours: Session) -> None:
    done: list[str] = []

    def act(name: str) -> None:
        if name == OURS[0]:
            raise CouldNotError(Problem("NO", "it could not"))
        done.append(name)

    assert run(ours, act) == [OURS[0]]
    assert done == [OURS[1]]


def test_ctrl_c_ends_what_the_other_cells_have_started(ours: Session) -> None:
    started, ended = threading.Event(), list[int]()

    def heard(_: str, line: str) -> None:
        started.set()

    def act(name: str) -> None:
        if name == OURS[0]:
            assert started.wait(timeout=30)
            raise KeyboardInterrupt
        command = Command(("sh", "-c", "echo up; sleep 600"), timeout=3600)
        ended.append(ours.tools.runner.run(command, heard).returncode)

    with pytest.raises(KeyboardInterrupt):
        run(ours, act)
    assert ended == [-15]
    with pytest.raises(CouldNotError):
        ours.tools.runner.run(Command(("true",), timeout=5))
