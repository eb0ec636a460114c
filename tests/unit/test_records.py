from __future__ import annotations

import io
import json
import stat
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from builder.errors import CouldNotError, Problem
from builder.pipeline.release import Outcome
from builder.report.progress import PlainProgress, Silent, timed
from builder.report.records import (
    BuildRecord,
    PublishRecord,
    RecordStore,
    SbomRecord,
    TestRecord,
    atomic_write,
)
from builder.report.table import Row, lines_of, row_of, run_line

if TYPE_CHECKING:
    from pathlib import Path

WHEN = datetime(2026, 12, 1, 12, tzinfo=UTC)
CELL = "cpu-torch2.6.0-py313-debian13"
DIGEST = "sha256:" + "a" * 64
BUILT = BuildRecord(
    cell=CELL, step="build", finished=WHEN, seconds=1.5, digest=DIGEST, inputs={"a": "b"}, size=5
)
TESTED = TestRecord(
    cell=CELL,
    step="test-smoke",
    finished=WHEN,
    seconds=2.0,
    digest=DIGEST,
    level="smoke",
    verdict="pass",
    passed=9,
    failed=0,
    skipped=0,
    report=DIGEST,
)
LISTED = SbomRecord(
    cell=CELL,
    step="sbom",
    finished=WHEN,
    seconds=3.0,
    digest=DIGEST,
    documents={"application/spdx+json": DIGEST},
    packages=243,
    scanner="syft 1",
)
PUBLISHED = PublishRecord(
    cell=CELL,
    step="publish",
    finished=WHEN,
    seconds=4.0,
    digest=DIGEST,
    registry="localhost:5000",
    repository="a/b",
    tags=["cpu"],
    referrers={},
    bytes_sent=0,
)


@pytest.mark.parametrize("record", [BUILT, TESTED, LISTED, PUBLISHED])
def test_a_record_is_read_back_as_it_was_written(
    tmp_path: Path, record: BuildRecord | TestRecord | SbomRecord | PublishRecord
) -> None:
    store = RecordStore(tmp_path)
    store.write(record)
    assert store.read(type(record), CELL, record.step) == record
    text = (tmp_path / CELL / f"{record.step}.json").read_text()
    assert json.loads(text)["schema"] == "rocm-torch/record/v1"
    assert text.endswith("}\n")


def test_where_there_is_no_record_there_is_none(tmp_path: Path) -> None:
    assert RecordStore(tmp_path).read(BuildRecord, CELL, "build") is None


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        BUILT.model_dump_json(by_alias=True).encode()[:-20],
        BUILT.model_dump_json(by_alias=True).replace("record/v1", "record/v2").encode(),
        BUILT.model_dump_json(by_alias=True).replace('"size"', '"length"').encode(),
    ],
)
def test_a_record_that_cannot_be_read_is_set_aside_and_can_be_written_anew(
    tmp_path: Path, damage: bytes
) -> None:
    store, path = RecordStore(tmp_path), tmp_path / CELL / "build.json"
    path.parent.mkdir()
    path.write_bytes(damage)
    assert store.read(BuildRecord, CELL, "build") is None
    assert not path.exists()
    assert path.with_suffix(".damaged").read_bytes() == damage
    store.write(BUILT)
    assert store.read(BuildRecord, CELL, "build") == BUILT


def test_a_record_of_another_step_is_no_record_of_this_one(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    store.write(LISTED.model_copy(update={"step": "build"}))
    assert store.read(BuildRecord, CELL, "build") is None


def test_writing_makes_the_folder_and_a_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "file"
    atomic_write(path, b"one")
    atomic_write(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_bytes_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    (path / "old").write_bytes(b"old")
    with pytest.raises(CouldNotError, match="directory"):
        atomic_write(path, b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert (path / "old").read_bytes() == b"old"


def test_readers_see_the_old_or_the_new_content_never_a_part(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = {bytes([letter]) * 100_000 for letter in b"abcd"}
    atomic_write(path, min(contents))
    seen: set[bytes] = set()
    writers = [threading.Thread(target=atomic_write, args=(path, one)) for one in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen.add(path.read_bytes())
    assert seen | {path.read_bytes()} <= contents


def test_progress_is_one_line_an_event_and_names_cell_and_step() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.say(CELL, "build", "current")
    progress.say("", "registry", "up")
    assert [line.split(None, 2) for line in stream.getvalue().splitlines()] == [
        [CELL, "build", "current"],
        ["rocm-torch", "registry", "up"],
    ]


def test_a_step_says_how_long_it_took_by_the_clock_it_was_given() -> None:
    stream, times = io.StringIO(), iter([10.0, 11.5, 12.04])
    with timed(PlainProgress(stream), CELL, "build", lambda: next(times), "building") as seconds:
        assert seconds() == 1.5
    assert [line.split(None, 2)[2] for line in stream.getvalue().splitlines()] == [
        "building",
        "done in 2.0 s",
    ]


def test_a_step_that_fails_is_not_said_to_be_done() -> None:
    stream = io.StringIO()
    with (
        pytest.raises(CouldNotError),
        timed(PlainProgress(stream), CELL, "build", lambda: 0.0, "building"),
    ):
        raise CouldNotError(Problem("C", "w"))
    assert "done" not in stream.getvalue()


def test_silence_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Silent().say(CELL, "build", "x")
    assert capsys.readouterr() == ("", "")


def test_the_row_of_a_released_cell_has_everything() -> None:
    row = row_of(Outcome(CELL, ("a", "cpu"), BUILT, (TESTED,), LISTED, PUBLISHED))
    assert row == Row(
        CELL,
        DIGEST,
        ("a", "cpu"),
        5,
        243,
        "pass",
        (("build", 1.5), ("test-smoke", 2.0), ("sbom", 3.0), ("publish", 4.0)),
        None,
    )
    assert json.loads(json.dumps(row.to_json()))["seconds"]["sbom"] == 3.0


def test_a_cell_that_failed_early_has_a_row_too() -> None:
    row = row_of(Outcome(CELL, error=CouldNotError(Problem("BUILD_FAILED", "w"))))
    assert (row.digest, row.size, row.verdict, row.error) == (
        None,
        None,
        "not tested",
        "BUILD_FAILED",
    )
    text = "\n".join(lines_of([row], None))
    assert "BUILD_FAILED" in text
    assert "Run it" not in text


def test_the_worst_verdict_counts() -> None:
    bad = TESTED.model_copy(update={"verdict": "fail"})
    gap = TESTED.model_copy(update={"verdict": "incomplete"})
    assert Outcome(CELL, tests=(TESTED, gap, bad)).verdict == "fail"
    assert Outcome(CELL, tests=(gap, TESTED)).verdict == "incomplete"
    assert Outcome(CELL, tests=(TESTED,)).verdict == "pass"
    assert Outcome(CELL).verdict == "not tested"


def test_the_line_to_run_is_of_the_first_released_cell_and_its_widest_tag(tmp_path: Path) -> None:
    failed = row_of(Outcome("other"))
    released = row_of(Outcome(CELL, ("cpu-py313", "cpu"), BUILT))
    line = run_line("ourorg/rocm-torch", [failed, released], tmp_path)
    assert line is not None
    assert line.startswith("docker run --rm -it --shm-size=16g --volume=rocm-torch-cache-")
    assert line.endswith(" ourorg/rocm-torch:cpu python")
    assert "--device" not in line
    assert run_line("ourorg/rocm-torch", [failed], tmp_path) is None
    text = "\n".join(lines_of([failed, released], line))
    assert f"  {line}" in text
    assert DIGEST in text
