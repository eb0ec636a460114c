"""`plan --since REV`: what a build would make differently than at a revision of git."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from samples import OURS, project

from builder.cli.main import run

DATA = Path(__file__).parents[2] / "builder/facts/data"
DEBIAN_13 = "docker.io/library/debian:13"


def git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    subprocess.run(["git", "-C", str(root), *who, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a locked working copy that is one commit of git."""
    root = project(tmp_path / "copy")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    return root


def since(root: Path, revision: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["--project", str(root), "plan", "--since", revision, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    return {entry["cell"]: entry for entry in cells}


def test_without_a_change_every_cell_is_current(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = since(repository, "HEAD", capsys)
    assert [entry["state"] for entry in found.values()] == ["current", "current"]
    assert run(["--project", str(repository), "plan", "--since", "HEAD"]) == 0
    assert capsys.readouterr().out == "nothing to do: 2 cells are current\n"


def test_a_changed_template_is_named_for_each_cell_that_it_renders(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = repository / "templates/macros/image.j2"
    path.write_text(path.read_text("utf-8").replace("umask 022", "umask 0022"), "utf-8")
    for entry in since(repository, "HEAD", capsys).values():
        assert entry["reasons"] == ["template macros/image.j2 changed"]


def test_a_changed_lock_entry_makes_its_own_cell_stale_and_no_other(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = repository / "matrix.lock"
    document = json.loads(path.read_text("utf-8"))
    document["cells"][OURS[0]]["archives"][0]["date"] = "2026-12-01T00:00:00+00:00"
    document["cells"][OURS[0]]["epoch"] += 1
    path.write_text(json.dumps(document), "utf-8")
    found = since(repository, "HEAD", capsys)
    assert found[OURS[0]]["reasons"] == ["archive moved", "epoch changed"]
    assert found[OURS[1]]["state"] == "current"


def test_a_cell_that_was_not_there_is_new(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = repository / "matrix.yaml"
    whole = path.read_text("utf-8")
    path.write_text(whole.replace('["debian13", "debian12"]', '["debian13"]'), "utf-8")
    git(repository, "commit", "--quiet", "-am", "one distribution")
    path.write_text(whole, "utf-8")
    found = since(repository, "HEAD", capsys)
    assert found[OURS[0]]["state"] == "current"
    assert found[OURS[1]]["reasons"] == ["new in the matrix"]


def test_a_revision_that_git_does_not_know_is_a_bad_call(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(repository), "plan", "--since", "no-such-branch"]) == 64
    assert "UNKNOWN_REVISION" in capsys.readouterr().err


def test_an_option_of_git_is_not_taken_for_a_revision(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(repository), "plan", "--since=--output=/tmp/x"]) == 64
    assert "UNKNOWN_REVISION" in capsys.readouterr().err


def test_a_cell_that_had_another_base_is_stale_and_the_others_are_compared(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = repository / "builder/facts/data"
    shutil.copytree(DATA, facts)
    path = facts / "distributions.yaml"
    text = path.read_text("utf-8")
    assert text.count(DEBIAN_13) == 1
    path.write_text(text.replace(DEBIAN_13, f"{DEBIAN_13}.1"), "utf-8")
    lock = repository / "matrix.lock"
    document = json.loads(lock.read_text("utf-8"))
    document["cells"][OURS[0]]["base"]["ref"] = DEBIAN_13
    lock.write_text(json.dumps(document), "utf-8")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "another base")
    found = since(repository, "HEAD", capsys)
    assert found[OURS[0]]["reasons"] == ["base moved"]
    assert found[OURS[1]]["state"] == "current"
