"""A Debian root made for real: equal bytes each time, and nothing of this machine in it."""

from __future__ import annotations

import os
import socket
import tarfile
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from builder.engines.bootstrap import KEYRING, Archive, Root, bootstrap_base, debian
from builder.engines.process import Command, Completed, ProcessRunner
from builder.errors import CouldNotError, Problem
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.engines.bootstrap import Distribution
    from builder.engines.process import Stream

pytestmark = pytest.mark.engine

EPOCH = datetime(2026, 11, 14, 9, 30, tzinfo=UTC)
IS_ROOT = os.geteuid() == 0


def small(distribution: Distribution, target: Path) -> Root:
    """Unpack one package without running anything: seconds, by the same way as a whole root."""
    return bootstrap_base(
        ProcessRunner(),
        distribution,
        epoch=EPOCH,
        target=target,
        is_root=IS_ROOT,
        environ=os.environ,
        variant="extract",
        include=("base-files",),
        timeout=300,
    )


def texts(tar: Path) -> dict[str, bytes]:
    with tarfile.open(tar) as archive:
        return {
            member.name.removeprefix("./"): content.read()
            for member in archive
            if member.isfile() and (content := archive.extractfile(member)) is not None
        }


@pytest.fixture(scope="module")
def trixie(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """A whole minimal Debian 13, made once."""
    return bootstrap_base(
        ProcessRunner(),
        debian("trixie"),
        epoch=EPOCH,
        target=tmp_path_factory.mktemp("trixie") / "root.tar",
        is_root=IS_ROOT,
        environ=os.environ,
        timeout=300,
    )


def test_a_whole_root_has_apt_the_keyring_and_canonical_sources(trixie: Root) -> None:
    files = texts(trixie.tar)
    assert "usr/bin/apt-get" in files
    assert files["etc/apt/sources.list.d/debian.sources"].decode() == debian("trixie").sources()
    assert "etc/apt/sources.list" not in files
    with tarfile.open(trixie.tar) as archive:
        names = {name.removeprefix("./") for name in archive.getnames()}
    assert str(KEYRING).lstrip("/") in names


def test_a_whole_root_holds_nothing_of_the_machine_or_the_run(trixie: Root) -> None:
    files = texts(trixie.tar)
    for path in ("etc/hostname", "etc/resolv.conf", "var/lib/systemd/random-seed"):
        assert path not in files
    assert files.get("etc/machine-id", b"") in (b"", b"uninitialized\n")
    left = ("var/log/", "var/lib/apt/lists/", "var/cache/apt/", "tmp/", "run/")
    # apt leaves its lock files, which are empty.
    assert [path for path, content in files.items() if path.startswith(left) and content] == []
    place = str(trixie.tar.parent).encode()
    assert [path for path, content in files.items() if place in content] == []
    name = socket.gethostname().encode()
    assert len(name) < 6 or not [
        path for path, content in files.items() if path.startswith("etc/") and name in content
    ]


def test_nothing_in_a_root_is_newer_than_the_epoch_and_no_device_nodes_are_in_it(
    trixie: Root,
) -> None:
    with tarfile.open(trixie.tar) as archive:
        members = archive.getmembers()
    assert max(member.mtime for member in members) <= EPOCH.timestamp()
    assert [member.name for member in members if member.isdev()] == []
    assert trixie.digest == Digest.of(trixie.tar.read_bytes())


@pytest.mark.parametrize("suite", ["trixie", "bookworm"])
def test_two_runs_in_two_folders_give_equal_bytes(tmp_path: Path, suite: str) -> None:
    (tmp_path / "other").mkdir()
    first = small(debian(suite), tmp_path / "first.tar")
    second = small(debian(suite), tmp_path / "other" / "second.tar")
    assert first.digest == second.digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.tar", "other"]


def test_an_archive_that_does_not_answer_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nowhere = Archive("http://deb.debian.org/debian", f"file://{tmp_path}/empty", ("trixie",))
    with pytest.raises(CouldNotError, match="BOOTSTRAP_FAILED") as caught:
        small(replace(debian("trixie"), archives=(nowhere,)), tmp_path / "root.tar")
    assert caught.value.problems[0].where == nowhere.uri
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_missing_keyring_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(CouldNotError, match=r"apt-get install .* debian-archive-keyring"):
        small(debian("trixie", keyring=tmp_path / "none.gpg"), tmp_path / "root.tar")


class Refusing:
    """A runner on a machine that has no mmdebstrap, or gives no user namespace."""

    def __init__(self, stderr: str | None) -> None:
        self.stderr = stderr

    def run(
        self,
        command: Command,
        on_line: Callable[[Stream, str], None] | None = None,  # noqa: ARG002
    ) -> Completed:
        if self.stderr is None:
            raise CouldNotError(Problem("TOOL_MISSING", "mmdebstrap is not installed"))
        return Completed(command.argv, 1, "", self.stderr, 0.1)


@pytest.mark.parametrize(
    ("stderr", "code", "fix"),
    [
        (None, "BOOTSTRAP_TOOL_MISSING", "sudo apt-get install -y"),
        ("E: unshare() failed: Operation not permitted", "BOOTSTRAP_NOT_ALLOWED", "sudo"),
    ],
)
def test_a_machine_that_cannot_bootstrap_is_told_what_to_do(
    tmp_path: Path, stderr: str | None, code: str, fix: str
) -> None:
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    with pytest.raises(CouldNotError, match=code) as caught:
        bootstrap_base(
            Refusing(stderr),
            debian("trixie", keyring=keyring),
            epoch=EPOCH,
            target=tmp_path / "root.tar",
            is_root=False,
            environ={},
        )
    assert fix in (caught.value.problems[0].fix or "")


@pytest.mark.parametrize("uri", ["deb.debian.org", "http://a b", "http://x [trusted=yes]"])
def test_an_address_that_is_more_than_one_word_of_a_sources_list_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="not the address"):
        debian("trixie", archive=uri)
