from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.matrix.versions import (
    normalise,
    normalise_python,
    python_key,
    python_tag,
    resolve,
    series,
    version_key,
)


def test_versions_sort_as_versions() -> None:
    newest_last = ["2.9.1", "2.10.0", "6.2.4", "7.2.4", "7.14.0", "10.0.0", "10.1.0"]
    assert sorted(set(newest_last), key=version_key) == newest_last


def test_versions_get_three_components() -> None:
    assert normalise("6.2") == "6.2.0"
    assert normalise("6.2.4") == "6.2.4"
    assert series("7.14.1") == "7.14"


@pytest.mark.parametrize("text", ["", "6", "6.", "v6.2", "6.2.4.1", "6.2\n", "٦.٢", "6.2a1", "1e3"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="version"):
        version_key(text)


@pytest.mark.parametrize("text", ["", "3", "3.10.1", "3.13tt", "13.1", "3.13\n", "0.9"])
def test_what_is_no_python_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Python"):
        python_key(text)


def test_a_series_means_its_newest_release() -> None:
    known = ["6.2.0", "6.2.4", "6.2.10", "6.3.0"]
    assert resolve("6.2", known) == "6.2.10"
    assert resolve("6.2.0", known) == "6.2.0"
    assert resolve("6.4", known) is None
    assert resolve("6.2.1", known) is None


def test_the_free_threaded_python_is_a_python_of_its_own() -> None:
    assert python_tag("3.13") == "py313"
    assert python_tag("3.13t") == "py313t"
    assert sorted(["3.14", "3.13t", "3.9", "3.13"], key=python_key) == [
        "3.9",
        "3.13",
        "3.13t",
        "3.14",
    ]


@given(st.lists(st.from_regex(r"\A[1-9]\.[0-9]{1,2}t?\Z"), min_size=2, max_size=2))
def test_two_pythons_never_share_a_form(pair: list[str]) -> None:
    one, two = map(normalise_python, pair)
    assert (python_tag(one) == python_tag(two)) is (one == two)
