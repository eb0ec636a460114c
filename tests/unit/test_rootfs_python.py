"""How an image finds the Python that has torch, gives it to users, and records its build."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOTFS = Path(__file__).parents[2] / "images/rootfs"
SCRIPTS = ROOTFS / "usr/lib/rocm-torch"
PROFILE = ROOTFS / "etc/profile.d/rocm-torch.sh"


def run(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPTS / script), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def interpreter(folder: Path, *, torch: str | None = None) -> Path:
    """Make a real virtual environment; ``torch`` names a version that it gets a stand-in of."""
    argv = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(argv, check=True, timeout=120)
    if torch is not None:
        give_torch(folder, torch)
    return folder / "bin/python"


def give_torch(venv: Path, version: str) -> None:
    (packages,) = venv.glob("lib/python3*/site-packages")
    (packages / "torch").mkdir()
    # Whoever imports it notices.
    (packages / "torch/__init__.py").write_text("raise SystemExit('torch was imported')\n")
    give_metadata(packages, "torch", version)


def give_metadata(packages: Path, name: str, version: str) -> None:
    info = packages / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreter(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreter(tmp_path_factory.mktemp("full") / "venv", torch="2.9.1+rocm7.2.1")


def test_the_interpreter_that_has_torch_is_found_wherever_it_stands(bare: Path, full: Path) -> None:
    for candidates in ([bare, full], [full, bare], [Path("/gone/python"), full]):
        ran = run("find-python", *candidates)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{full}\n", "")


def test_no_interpreter_with_torch_is_an_error_that_names_who_was_asked(bare: Path) -> None:
    ran = run("find-python", "/gone/python", bare)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"no interpreter has torch; asked: {bare}\n" in ran.stderr


def test_two_interpreters_with_a_torch_each_are_an_error_that_names_both(
    full: Path, tmp_path: Path
) -> None:
    other = interpreter(tmp_path / "other", torch="2.8.0")
    ran = run("find-python", full, other)
    assert (ran.returncode, ran.stdout) == (1, "")
    for part in (str(full), str(other), f"{full.parents[1]}/lib", f"{other.parents[1]}/lib"):
        assert part in ran.stderr


def test_one_torch_that_two_interpreters_see_is_one_and_the_first_has_it(
    full: Path, tmp_path: Path
) -> None:
    """As in a venv over the system's Python, or python and python3 of one venv."""
    outer = interpreter(tmp_path / "outer")
    (packages,) = full.parents[1].glob("lib/python3*/site-packages")
    (inner,) = outer.parents[1].glob("lib/python3*/site-packages")
    (inner / "torch").symlink_to(packages / "torch")
    assert run("find-python", outer, full).stdout == f"{outer}\n"
    assert run("find-python", full, full.with_name("python3")).stdout == f"{full}\n"


def test_an_empty_folder_called_torch_is_no_torch(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "venv")
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    (packages / "torch").mkdir()
    assert run("find-python", python).returncode == 1


def test_the_users_own_packages_do_not_count(
    bare: Path, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (packages,) = full.parents[1].glob("lib/python3*/site-packages")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    assert run("find-python", bare).returncode == 1


def test_an_interpreter_that_does_not_run_is_passed_over(full: Path, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    assert run("find-python", broken, full).stdout == f"{full}\n"


def test_the_wrappers_start_that_interpreter_in_its_environment(full: Path, tmp_path: Path) -> None:
    assert run("wrap-python", full, tmp_path / "bin").returncode == 0
    ask = "import sys; print(sys.prefix, sys.argv[1:])"
    for name in ("python", "python3"):
        said = subprocess.check_output([tmp_path / "bin" / name, "-c", ask, "a b", "$c"], text=True)
        assert said == f"{full.parents[1]} ['a b', '$c']\n"
    assert (tmp_path / "bin/pip").read_text() == f'#!/bin/sh\nexec {full} -m pip "$@"\n'
    torchrun = (tmp_path / "bin/torchrun").read_text()
    assert torchrun == f'#!/bin/sh\nexec {full} -m torch.distributed.run "$@"\n'


@pytest.mark.parametrize("words", [(), ("/gone/python",), ("a", "b", "c")])
def test_a_wrapper_for_nothing_is_a_bad_call(words: tuple[str, ...]) -> None:
    assert run("wrap-python", *words).returncode == 64


def test_the_record_pins_torch_and_what_belongs_to_its_build_and_nothing_else(
    tmp_path: Path,
) -> None:
    python = interpreter(tmp_path / "venv", torch="2.9.1+rocm7.2.1")
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    for name, version in (
        ("pytorch_triton_rocm", "3.5.1"),
        ("torchvision", "0.24.1+rocm7.2.1"),
        ("numpy", "2.3.5"),
        ("torch-geometric", "2.7.0"),
    ):
        give_metadata(packages, name, version)
    record = tmp_path / "share"
    subprocess.run([python, SCRIPTS / "record-torch", record], check=True, timeout=60)
    assert (record / "python").read_text() == f"{python}\n"
    assert (record / "constraints.txt").read_text().splitlines() == [
        "torch==2.9.1+rocm7.2.1",
        "torchvision==0.24.1+rocm7.2.1",
        "pytorch-triton-rocm==3.5.1",
    ]


def test_a_python_without_torch_gets_an_empty_list_of_constraints(
    bare: Path, tmp_path: Path
) -> None:
    subprocess.run([bare, SCRIPTS / "record-torch", tmp_path], check=True, timeout=60)
    assert (tmp_path / "constraints.txt").read_text() == ""


def test_pip_keeps_torch_under_the_constraints(tmp_path: Path) -> None:
    """The report: a requirement that wants another torch exchanged the ROCm build."""
    pins = tmp_path / "constraints.txt"
    pins.write_text("torch==2.9.1+rocm7.2.1\n")
    (tmp_path / "wheels").mkdir()
    pip = (sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--target", tmp_path)
    argv = map(str, [*pip, "--find-links", tmp_path / "wheels", "-c", pins, "torch==2.10.0"])
    ran = subprocess.run(
        list(argv),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 1
    assert "2.9.1+rocm7.2.1" in ran.stderr + ran.stdout


def test_a_login_shell_finds_the_folders_once_and_ours_first(tmp_path: Path) -> None:
    """With the folders moved under a root of the test, since they do not exist here."""
    text = PROFILE.read_text().replace("/opt/", f"{tmp_path}/opt/")
    for name in ("rocm/bin", "rocm-torch/bin"):
        (tmp_path / "opt" / name).mkdir(parents=True)
    script = f'{text}\n{text}\nprintf %s "$PATH"\n'
    said = subprocess.check_output(["sh", "-eu", "-c", script], text=True, env={"PATH": "/usr/bin"})
    assert said == f"{tmp_path}/opt/rocm-torch/bin:{tmp_path}/opt/rocm/bin:/usr/bin"


def test_the_names_that_are_pinned_are_those_of_the_self_test_and_no_others() -> None:
    pinned = runpy.run_path(str(SCRIPTS / "record-torch"))["PINNED"]
    assert set(pinned) == {
        "torch",
        "torchvision",
        "torchaudio",
        "triton",
        "triton-rocm",
        "pytorch-triton-rocm",
    }


def test_the_scripts_can_be_run() -> None:
    for name in ("find-python", "wrap-python", "fetch-key", "record-torch"):
        assert os.access(SCRIPTS / name, os.X_OK)
