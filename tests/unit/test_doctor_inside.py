"""The doctor of the images: the staged files alone, below a stand-in root."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from builder.host.rules.inside import main, reached
from builder.host.snapshot import DeviceNode, HostSnapshot
from builder.pipeline.assets import doctor_files

if TYPE_CHECKING:
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")
# In the child and after its imports (argparse takes shutil late): another user may not reach
# the files of this Python.
DROP = "import os; os.setgroups([]); os.setgid({0}); os.setuid({0});"
HOME = "usr/lib/rocm-torch/doctor"
# What Python 3.8 does not have and its parser takes all the same.
NEWER = ("removeprefix", "removesuffix", "bit_count", "zip_strict")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A root with the staged files, a cell, and the mark of a container."""
    for name, file in doctor_files().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
    cell = tmp_path / "usr/share/rocm-torch/cell.json"
    cell.parent.mkdir(parents=True)
    cell.write_text(json.dumps({"id": "x", "rocm": "7.2.1", "gfx": ["gfx1100"]}))
    (tmp_path / ".dockerenv").touch()
    return tmp_path


def make_node(root: Path, name: str, number: tuple[int, int] = (1, 3), gid: int = 992) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(*number))
    os.chown(path, 0, gid)
    path.chmod(0o660)


def ask(root: Path, *words: str, user: int | None = None) -> tuple[int, dict[str, Any]]:
    """Run the staged files with a bare Python that knows nothing of this working copy."""
    code = (
        "import shutil, sys; sys.path.insert(0, sys.argv.pop(1));"
        "from builder.host.rules.inside import main;"
        f"{DROP.format(user) if user else ''}"
        "sys.exit(main())"
    )
    argv = [sys.executable, "-I", "-S", "-B", "-c", code, str(root / HOME)]
    done = subprocess.run(
        [*argv, "--root", str(root), "--json", *words],
        capture_output=True,
        check=False,
        env={},
        timeout=60,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def codes(document: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in document["findings"]]


def test_without_nodes_it_says_that_they_were_not_passed_in(image: Path) -> None:
    status, document = ask(image)
    assert (status, document["verdict"]) == (2, "fail")
    assert document["reached"] == "not passed in"
    assert codes(document)[0] == "KFD_MISSING"


@as_root
def test_closed_nodes_are_passed_in_and_not_openable_and_the_number_is_named(
    image: Path,
) -> None:
    make_node(image, "dev/kfd")
    make_node(image, "dev/dri/renderD128")
    for folder in (image, *image.parents):
        if folder.as_posix().startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    status, document = ask(image, user=1000)
    assert (status, document["reached"]) == (2, "passed in, not openable")
    assert codes(document)[0] == "KFD_PERMISSION"
    assert document["findings"][0]["fix"] == "--group-add 992"


@as_root
def test_nodes_that_open_pass(image: Path) -> None:
    make_node(image, "dev/kfd")
    make_node(image, "dev/dri/renderD128")
    status, document = ask(image)
    assert (status, document["reached"]) == (0, "passed in and openable")


@as_root
def test_a_node_without_a_driver_behind_it_is_refused_by_the_driver(image: Path) -> None:
    make_node(image, "dev/kfd", number=(240, 77))
    status, document = ask(image)
    assert (status, document["reached"]) == (2, "openable by mode, refused by the driver")
    assert codes(document)[0] == "KFD_OPEN_ENXIO"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("", "passed in and openable"),
        ("EACCES", "passed in, not openable"),
        ("EPERM", "passed in, not openable"),
        ("EINVAL", "openable by mode, refused by the driver"),
    ],
)
def test_how_far_the_nodes_came_is_told_apart(error: str, words: str) -> None:
    seen = HostSnapshot(nodes=(DeviceNode("/dev/kfd", open_errno=error),))
    assert reached(seen) == words


def test_damaged_facts_are_done_without(image: Path) -> None:
    (image / HOME / "facts.json").write_text("{")
    assert ask(image)[0] == 2


def test_the_text_fits_a_screen(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(image)]) == 2
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "device nodes: not passed in"
    assert len(printed) <= 24


def test_what_it_saw_can_be_taken_along(image: Path) -> None:
    status, document = ask(image, "--state")
    assert status == 0
    assert document["schema"] == "rocm-torch/host-state/v1"
    assert document["container"] == "docker"


STAGED = {name: file for name, file in doctor_files().items() if name.endswith(".py")}


@pytest.mark.parametrize("name", sorted(STAGED))
def test_each_staged_file_needs_the_standard_library_of_python_3_8_only(name: str) -> None:
    text = STAGED[name].content.decode()
    tree = ast.parse(text, feature_version=(3, 8))
    known = set(sys.stdlib_module_names) | {"builder"}
    for found in ast.walk(tree):
        if isinstance(found, ast.Import):
            assert {alias.name.partition(".")[0] for alias in found.names} <= known
        if isinstance(found, ast.ImportFrom):
            assert (found.module or "").partition(".")[0] in known
    assert [word for word in NEWER if word in text] == []
    assert "slots=True" not in text


def test_the_staged_files_import_nothing_that_is_not_staged() -> None:
    modules = {
        name.split("/doctor/")[1].removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        for name in STAGED
    }
    for name, file in STAGED.items():
        for found in ast.walk(ast.parse(file.content)):
            if isinstance(found, ast.ImportFrom) and (found.module or "").startswith("builder"):
                assert found.module in modules, name
