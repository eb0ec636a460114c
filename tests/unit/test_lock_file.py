from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import ARCHIVE, CELL, LOCKED

from builder.errors import RefusedError
from builder.matrix.lock import ArchiveState, Lock, LockedCell
from builder.oci import Digest

DIGESTS = st.binary(max_size=4).map(Digest.of)
ZONES = st.integers(-12, 12).map(lambda hours: timezone(timedelta(hours=hours)))
DATES = st.datetimes(datetime(1971, 1, 2), datetime(2100, 1, 1), timezones=ZONES)
ARCHIVES = st.builds(ArchiveState, st.text(), st.text(), DATES, DIGESTS)
CELLS = st.builds(
    LockedCell,
    DIGESTS,
    st.sampled_from(("registry", "bootstrap")),
    st.lists(ARCHIVES, max_size=3).map(tuple),
    st.integers(0, 4_000_000_000),
)
GOOD = Lock().with_cells({CELL.id: LOCKED}).to_text()


@given(st.dictionaries(st.text(), CELLS, max_size=3))
def test_a_lock_is_read_back_as_it_was_written(cells: dict[str, LockedCell]) -> None:
    text = Lock().with_cells(cells).to_text()
    again = Lock.from_text(text, "matrix.lock")
    assert again.cells == cells
    assert again.to_text() == text
    assert Lock.from_text(text.encode(), "matrix.lock").cells == cells


def test_the_text_does_not_depend_on_the_order_of_locking() -> None:
    first = Lock().with_cells({"a": LOCKED}).with_cells({"b": LOCKED})
    assert first.to_text() == Lock().with_cells({"b": LOCKED, "a": LOCKED}).to_text()
    assert GOOD.endswith("}\n")


def test_a_new_entry_replaces_the_old_one_and_leaves_the_others() -> None:
    new = LockedCell(Digest.of(b"n"), "registry", (), 5)
    lock = Lock().with_cells({"a": LOCKED, "b": LOCKED})
    assert dict(lock.with_cells({"a": new}).cells) == {"a": new, "b": LOCKED}
    assert lock.cells["a"] == LOCKED


def test_the_epoch_is_a_time_in_utc() -> None:
    assert LOCKED.created == datetime(2026, 11, 29, 0, 53, 13, tzinfo=UTC)


def test_the_date_of_an_archive_is_written_in_utc() -> None:
    assert ARCHIVE.to_json()["date"] == "2026-07-11T00:00:00+00:00"


def changed(**parts: Any) -> str:
    document = json.loads(GOOD)
    document["cells"][CELL.id] |= parts
    return json.dumps(document)


DIGEST = str(LOCKED.base)
ENTRY = ARCHIVE.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '"text"',
        "{}",
        '{"schema": "rocm-torch/lock/v2", "cells": {}}',
        '{"schema": "rocm-torch/lock/v1"}',
        '{"schema": "rocm-torch/lock/v1", "cells": []}',
        '{"schema": "rocm-torch/lock/v1", "cells": {"a": []}}',
        '{"schema": "rocm-torch/lock/v1", "cells": {"a": {}}}',
        GOOD[:-40],
        "<<<<<<< ours\n" + GOOD,
        changed(base=DIGEST),
        changed(base={"digest": "sha256:1", "origin": "registry"}),
        changed(base={"digest": DIGEST, "origin": "elsewhere"}),
        changed(archives=None),
        changed(archives="no"),
        changed(archives=[ENTRY | {"date": "yesterday"}]),
        changed(archives=[ENTRY | {"sha256": "1"}]),
        changed(epoch=None),
        changed(epoch="soon"),
        changed(epoch=float("inf")),
    ],
)
def test_a_damaged_lock_is_refused_with_its_name_and_what_to_do(text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        Lock.from_text(text, "matrix.lock")
    problem = caught.value.problems[0]
    assert (problem.code, problem.where) == ("LOCK_DAMAGED", "matrix.lock")
    assert "restore it from git" in (problem.fix or "")


def test_a_lock_that_is_no_text_is_refused() -> None:
    with pytest.raises(RefusedError):
        Lock.from_text(b"\xff\xfe\x00", "matrix.lock")


def test_a_base_that_was_found_under_another_name_is_no_answer() -> None:
    entry = LockedCell(Digest.of(b"n"), "registry", (), 5, ref="docker.io/rocm/pytorch:a")
    assert LockedCell.from_json(entry.to_json()) == entry
    assert entry.answers("docker.io/rocm/pytorch:a", None)
    assert not entry.answers("docker.io/rocm/pytorch:b", None)
    assert LockedCell(Digest.of(b"n"), "registry", (), 5).answers("docker.io/any:1", None)
