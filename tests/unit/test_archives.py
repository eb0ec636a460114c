"""The state of a package archive is read from its Release file, and nothing else passes for one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.engines.archives import archive_state, release_date
from builder.errors import CouldNotError
from builder.oci import Digest

BODY = """\
Origin: Debian
Suite: stable-updates
Codename: trixie-updates
Date: Sat, 28 Nov 2026 14:09:31 UTC
Components: main
SHA256:
 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 Date: no field
"""
SIGNED = f"""\
-----BEGIN PGP SIGNED MESSAGE-----
Hash: SHA256

{BODY}-----BEGIN PGP SIGNATURE-----

Date: Mon, 01 Jan 2001 00:00:00 UTC
-----END PGP SIGNATURE-----
"""
RELEASED = datetime(2026, 11, 28, 14, 9, 31, tzinfo=UTC)


def test_the_state_of_a_suite_is_its_date_and_the_hash_of_what_was_fetched() -> None:
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return SIGNED.encode()

    state = archive_state(fetch, "http://mirror.example/debian/", "trixie-updates")
    assert asked == ["http://mirror.example/debian/dists/trixie-updates/InRelease"]
    assert (state.uri, state.suite) == ("http://mirror.example/debian", "trixie-updates")
    assert state.date == RELEASED
    assert state.sha256 == Digest.of(SIGNED.encode())


@pytest.mark.parametrize("text", [BODY, SIGNED, SIGNED.replace("\n", "\r\n")])
def test_a_release_file_is_read_with_and_without_its_signature(text: str) -> None:
    assert release_date(text.encode(), "trixie-updates", "here") == RELEASED


def test_a_suite_may_be_asked_for_by_suite_or_codename() -> None:
    assert release_date(BODY.encode(), "stable-updates", "here") == RELEASED


@given(
    date=st.datetimes(min_value=datetime(1993, 8, 16), max_value=datetime(2200, 1, 1)),
    minutes=st.integers(min_value=-14 * 60, max_value=14 * 60),
)
def test_every_zone_is_turned_into_utc(date: datetime, minutes: int) -> None:
    local = date.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=minutes)))
    text = f"Date: {local.strftime('%a, %d %b %Y %H:%M:%S %z')}\n"
    read = release_date(text.encode(), "trixie", "here")
    assert read == local
    assert read.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<html>Please log in</html>", "no Date field"),
        ("", "no Date field"),
        ("Codename: trixie-updates\nDate: soon\n", "is no date: 'soon'"),
        (BODY.replace("trixie", "forky").replace("stable", "testing"), "forky-updates"),
    ],
)
def test_anything_else_is_an_error_that_names_the_address(text: str, what: str) -> None:
    with pytest.raises(CouldNotError, match="ARCHIVE_UNREADABLE") as caught:
        archive_state(lambda _: text.encode(), "http://mirror.example/debian", "trixie-updates")
    problem = caught.value.problems[0]
    assert what in problem.what
    assert problem.where == "http://mirror.example/debian/dists/trixie-updates/InRelease"
