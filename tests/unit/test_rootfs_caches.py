"""The cache hook of the images, run as its users meet it: in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = Path(__file__).parents[2] / "images/rootfs/usr/lib/rocm-torch"
VARIABLES = (
    "MIOPEN_USER_DB_PATH",
    "MIOPEN_CUSTOM_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "HF_HOME",
    "TORCH_HOME",
)
# SHARED is set to places of the test, and the module runs as it does at start.
PROGRAM = """
import json, os, sys
source = open(sys.argv[1], encoding="utf-8").read()
shared = tuple(json.loads(sys.argv[2]))
assert source.count('SHARED = ("/tmp", "/var/tmp", "/dev/shm")') == 1
source = source.replace('SHARED = ("/tmp", "/var/tmp", "/dev/shm")', f"SHARED = {shared!r}")
before = set(sys.modules)
if len(sys.argv) > 3:
    os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
os.umask(0o022)
exec(compile(source, sys.argv[1], "exec"), {"__name__": "rocm_torch_caches"})
print(json.dumps([dict(os.environ), sorted(set(sys.modules) - before)]))
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory as /tmp is, which other users can reach too."""
    place = Path("/var/tmp") / f"rocm-torch-test-{uuid.uuid4().hex}"
    place.mkdir()
    place.chmod(0o1777)
    yield place
    for found in sorted(place.rglob("*"), reverse=True):
        if found.is_dir() and not found.is_symlink():
            found.rmdir()
        else:
            found.unlink()
    place.rmdir()


def start(
    environment: dict[str, str], *shared: Path, uid: int | None = None
) -> tuple[dict[str, str], list[str]]:
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, str(LIBRARY / "rocm_torch_caches.py")]
    argv += [json.dumps([str(place) for place in shared])]
    if uid is not None:
        argv.append(str(uid))
    ran = subprocess.run(
        argv, env=environment, check=True, capture_output=True, text=True, cwd="/", timeout=60
    )
    assert ran.stderr == ""
    after, modules = json.loads(ran.stdout)
    return after, modules


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o7777


def test_home_gets_a_private_directory_and_all_variables_point_into_it(tmp_path: Path) -> None:
    after, _ = start({"HOME": str(tmp_path)})
    base = tmp_path / ".cache/rocm-torch"
    assert after["ROCM_TORCH_CACHES"] == str(base)
    assert mode(base) == 0o700
    assert all(Path(after[variable]).parent == base for variable in VARIABLES)
    assert len({after[variable] for variable in VARIABLES}) == len(VARIABLES)


def test_the_named_place_comes_first_then_xdg_then_home(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    after, _ = start(environment)
    assert after["ROCM_TORCH_CACHES"] == str(tmp_path / "xdg/rocm-torch")
    after, _ = start({**environment, "ROCM_TORCH_CACHE_DIR": str(tmp_path / "named")})
    assert after["ROCM_TORCH_CACHES"] == str(tmp_path / "named")
    assert mode(tmp_path / "named") == 0o700


def test_a_named_directory_keeps_its_mode_and_is_refused_when_others_can_write(
    tmp_path: Path,
) -> None:
    named = tmp_path / "named"
    named.mkdir()
    named.chmod(0o755)
    environment = {"HOME": str(tmp_path), "ROCM_TORCH_CACHE_DIR": str(named)}
    assert start(environment)[0]["ROCM_TORCH_CACHES"] == str(named)
    named.chmod(0o775)
    assert start(environment)[0]["ROCM_TORCH_CACHES"] == str(tmp_path / ".cache/rocm-torch")
    assert mode(named) == 0o775


def test_values_of_the_user_are_never_touched(tmp_path: Path) -> None:
    after, _ = start({"HOME": str(tmp_path), "HF_HOME": "/models", "TRITON_CACHE_DIR": ""})
    assert after["HF_HOME"] == "/models"
    assert after["TRITON_CACHE_DIR"] == ""
    assert after["TORCH_HOME"] == str(tmp_path / ".cache/rocm-torch/torch")


def test_a_hugging_face_cache_that_was_brought_along_stays_in_use(tmp_path: Path) -> None:
    (tmp_path / ".cache/huggingface").mkdir(parents=True)
    after, _ = start({"HOME": str(tmp_path)})
    assert "HF_HOME" not in after
    assert "TORCH_HOME" in after


def test_a_child_process_keeps_what_its_parent_chose(tmp_path: Path) -> None:
    first, _ = start({"HOME": str(tmp_path)})
    second, _ = start({**first, "HOME": "/nonexistent"})
    assert {**second, "HOME": first["HOME"]} == first


def test_a_directory_that_is_gone_is_chosen_anew_and_own_values_stay(tmp_path: Path) -> None:
    first, _ = start({"HOME": str(tmp_path), "HF_HOME": "/models"})
    (tmp_path / ".cache/rocm-torch").rmdir()
    xdg = str(tmp_path / "xdg")
    after, _ = start({**first, "XDG_CACHE_HOME": xdg})
    assert after["HF_HOME"] == "/models"
    assert after["ROCM_TORCH_CACHES"] == f"{xdg}/rocm-torch"
    assert after["TORCH_HOME"] == f"{xdg}/rocm-torch/torch"


@needs_root
def test_after_a_change_of_user_the_inherited_directory_is_left(shared: Path) -> None:
    first, _ = start({"HOME": "/nonexistent"}, shared, uid=12345)
    after, _ = start({**first, "HF_HOME": "/models"}, shared, uid=12346)
    assert first["ROCM_TORCH_CACHES"] == str(shared / "rocm-torch-12345")
    assert after["ROCM_TORCH_CACHES"] == str(shared / "rocm-torch-12346")
    assert after["TRITON_CACHE_DIR"] == str(shared / "rocm-torch-12346/triton")
    assert after["HF_HOME"] == "/models"


@needs_root
@pytest.mark.parametrize("home", [None, "/", "/nonexistent", "relative", ""])
def test_an_unknown_user_without_a_home_gets_a_shared_place(home: str | None, shared: Path) -> None:
    after, _ = start({} if home is None else {"HOME": home}, shared, uid=12345)
    base = shared / "rocm-torch-12345"
    assert after["ROCM_TORCH_CACHES"] == str(base)
    assert (base.stat().st_uid, mode(base)) == (12345, 0o700)


@needs_root
def test_a_home_of_another_user_is_left_alone(shared: Path) -> None:
    home = shared / "home"
    home.mkdir()
    os.chown(home, 12346, 12346)
    # Root (sudo -E) can write everywhere, and must not leave its directories there.
    base = start({"HOME": str(home)}, shared)[0]["ROCM_TORCH_CACHES"]
    assert not base.startswith(str(home))
    assert list(home.iterdir()) == []


@needs_root
@pytest.mark.parametrize("trap", ["symlink", "other owner", "file"])
def test_what_an_attacker_left_in_a_shared_place_is_not_used(trap: str, shared: Path) -> None:
    first, second = shared / "first", shared / "second"
    for place in (first, second):
        place.mkdir()
        place.chmod(0o1777)
    planted = first / "rocm-torch-12345"
    if trap == "symlink":
        target = shared / "target"
        target.mkdir()
        os.chown(target, 12345, 12345)
        planted.symlink_to(target)
    elif trap == "other owner":
        planted.mkdir()
        planted.chmod(0o777)
        os.chown(planted, 12346, 12346)
    else:
        planted.touch()
    after, _ = start({}, first, second, uid=12345)
    assert after["ROCM_TORCH_CACHES"] == str(second / "rocm-torch-12345")


@needs_root
def test_our_own_directory_with_a_loose_mode_is_tightened(shared: Path) -> None:
    own = shared / "rocm-torch-12345"
    own.mkdir()
    own.chmod(0o775)
    os.chown(own, 12345, 12345)
    assert start({}, shared, uid=12345)[0]["ROCM_TORCH_CACHES"] == str(own)
    assert mode(own) == 0o700


@needs_root
def test_a_place_where_others_can_exchange_directories_is_not_used(shared: Path) -> None:
    loose = shared / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    after, _ = start({}, loose, shared, uid=12345)
    assert after["ROCM_TORCH_CACHES"] == str(shared / "rocm-torch-12345")


@needs_root
def test_without_any_place_it_says_so_and_leaves_the_variables_alone(shared: Path) -> None:
    shared.chmod(0o755)
    after, _ = start({"HOME": "/", "HF_HOME": "/models"}, shared, uid=12345)
    assert after["ROCM_TORCH_CACHES"] == "unavailable"
    assert after["HF_HOME"] == "/models"
    assert not set(after) & (set(VARIABLES) - {"HF_HOME"})


@needs_root
def test_unavailable_caches_are_tried_again_by_a_child(shared: Path) -> None:
    after, _ = start({"ROCM_TORCH_CACHES": "unavailable"}, shared, uid=12345)
    assert after["ROCM_TORCH_CACHES"] == str(shared / "rocm-torch-12345")


def test_off_means_that_nothing_is_done(tmp_path: Path) -> None:
    after, _ = start({"HOME": str(tmp_path), "ROCM_TORCH_CACHES": "off"})
    assert not set(after) & set(VARIABLES)
    assert list(tmp_path.iterdir()) == []


def test_only_modules_that_python_has_already_are_imported(tmp_path: Path) -> None:
    assert set(start({"HOME": str(tmp_path)})[1]) <= {"os", "stat", "posixpath", "genericpath"} | {
        "_collections_abc",
        "_stat",
        "abc",
        "_abc",
        "errno",
    }


@pytest.fixture(scope="module")
def hooked_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hooked")
    library = folder / "rocm-torch"
    library.mkdir()
    for name in ("rocm_torch_caches.py", "hook-python"):
        (library / name).write_bytes((LIBRARY / name).read_bytes())
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    ran = subprocess.run(
        [python, library / "hook-python"], check=True, capture_output=True, text=True, timeout=60
    )
    assert "rocm-torch.pth" in ran.stdout
    return folder


@pytest.mark.parametrize("options", [(), ("-I",), ("-B",), ("-E",), ("-O",)])
def test_the_hook_runs_at_every_start_and_leaves_the_path_as_it_was(
    options: tuple[str, ...], hooked_venv: Path, tmp_path: Path
) -> None:
    code = "import os, sys; print(os.environ['ROCM_TORCH_CACHES'], *sys.path, sep='\\n')"
    ran = subprocess.run(
        [hooked_venv / "venv/bin/python", *options, "-c", code],
        env={"HOME": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    base, *path = ran.stdout.splitlines()
    assert base == str(tmp_path / ".cache/rocm-torch")
    assert not [entry for entry in path if entry.endswith("rocm-torch")]
    assert ran.stderr == ""


@pytest.mark.parametrize("text", [None, "raise RuntimeError('broken')", "syntax error"])
def test_a_broken_or_missing_hook_never_stops_python(
    text: str | None, hooked_venv: Path, tmp_path: Path
) -> None:
    module = hooked_venv / "rocm-torch/rocm_torch_caches.py"
    good = module.read_bytes()
    try:
        module.unlink() if text is None else module.write_text(text)
        ran = subprocess.run(
            [hooked_venv / "venv/bin/python", "-c", "print('runs')"],
            env={"HOME": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        module.write_bytes(good)
    assert (ran.stdout, ran.stderr) == ("runs\n", "")
