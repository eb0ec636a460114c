"""The shell programs of the images, as far as they go without devices and engine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOTFS = Path(__file__).parents[2] / "images/rootfs"
ENTRYPOINT = ROOTFS / "usr/local/bin/rocm-torch-entrypoint"
SELFTEST = ROOTFS / "usr/local/bin/rocm-torch-selftest"
BUILD_TIME = ("setup-user", "find-python", "wrap-python", "fetch-key")
SCRIPTS = (
    ENTRYPOINT,
    SELFTEST,
    *(ROOTFS / "usr/lib/rocm-torch" / name for name in BUILD_TIME),
)
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


def shell_argv(shell: str) -> list[str]:
    return {"busybox": ["busybox", "sh"], "bash": ["bash", "--posix"]}.get(shell, [shell])


def enter(
    shell: str, *command: str, device_root: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell_argv(shell), str(ENTRYPOINT), *command],
        env={
            "PATH": os.environ["PATH"],
            "ROCM_TORCH_DEVICE_ROOT": str(device_root),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def stand_in(root: Path, *, mode: int = 0o660, group: int = 992, owner: int = 0) -> None:
    """Make files where the device nodes would be: permissions work on them all the same."""
    (root / "dev/dri").mkdir(parents=True)
    for name, gid in (("kfd", group), ("dri/renderD128", group), ("dri/renderD129", 44)):
        node = root / "dev" / name
        node.touch()
        os.chown(node, owner, gid)
        node.chmod(mode)
    for folder in (root, root / "dev", root / "dev/dri", *root.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o555)


def as_user(groups: str) -> list[str]:
    return ["setpriv", "--reuid", "1000", "--regid", "1000", "--groups", groups]


def enter_as_user(shell: str, root: Path, groups: str = "1000") -> str:
    ran = subprocess.run(
        [*as_user(groups), *shell_argv(shell), "-s", "echo", "ran"],
        input=ENTRYPOINT.read_text(),
        env={"PATH": os.environ["PATH"], "ROCM_TORCH_DEVICE_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout) == (0, "ran\n")
    return ran.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
@pytest.mark.parametrize("shell", SHELLS)
def test_the_scripts_are_valid_in_each_shell(shell: str, script: Path) -> None:
    subprocess.run([*shell_argv(shell), "-n", script], check=True, timeout=60)
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_without_devices_the_command_runs_and_nothing_is_said(shell: str, tmp_path: Path) -> None:
    ran = enter(
        shell, "sh", "-c", 'printf "%s|" "$@"; exit 7', "x", "a b", "", device_root=tmp_path
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "a b||", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_command_a_shell_is_started(shell: str, tmp_path: Path) -> None:
    ran = enter(shell, device_root=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_that_is_not_there_ends_with_127(shell: str, tmp_path: Path) -> None:
    assert enter(shell, "no-such-command", device_root=tmp_path).returncode == 127


def test_the_command_takes_the_place_of_the_entrypoint(tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["dash", str(ENTRYPOINT), "sh", "-c", "echo $$"],
        env={"PATH": os.environ["PATH"], "ROCM_TORCH_DEVICE_ROOT": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    stdout, _ = process.communicate(timeout=60)
    assert int(stdout) == process.pid


@needs_root
@pytest.mark.parametrize("shell", SHELLS)
def test_a_missing_group_is_named_with_all_gids_in_one_line(shell: str, tmp_path: Path) -> None:
    stand_in(tmp_path)
    said = enter_as_user(shell, tmp_path)
    assert said.count("\n") == 1
    assert said.endswith("Start the container with: --group-add 992 --group-add 44\n")
    assert f"{tmp_path}/dev/kfd (uid 0, gid 992, mode 660)" in said
    assert "this process has uid 1000, groups 1000" in said


@needs_root
@pytest.mark.parametrize("shell", SHELLS)
def test_with_all_groups_nothing_is_said(shell: str, tmp_path: Path) -> None:
    stand_in(tmp_path)
    assert enter_as_user(shell, tmp_path, "1000,44,992") == ""


@needs_root
@pytest.mark.parametrize("shell", SHELLS)
def test_only_the_nodes_that_are_closed_are_told(shell: str, tmp_path: Path) -> None:
    stand_in(tmp_path)
    said = enter_as_user(shell, tmp_path, "1000,992")
    assert "renderD129" in said
    assert "dev/kfd" not in said


@needs_root
def test_without_kfd_nothing_is_said_of_render_nodes(tmp_path: Path) -> None:
    stand_in(tmp_path)
    (tmp_path / "dev/kfd").unlink()
    assert enter_as_user("dash", tmp_path) == ""


@needs_root
def test_a_mode_that_shuts_out_the_group_is_not_answered_with_group_add(tmp_path: Path) -> None:
    stand_in(tmp_path, mode=0o600)
    said = enter_as_user("dash", tmp_path)
    assert "--group-add" not in said
    assert 'MODE="0660"' in said


@needs_root
def test_an_owner_without_id_is_answered_with_keep_groups(tmp_path: Path) -> None:
    stand_in(tmp_path, owner=65534, group=65534)
    said = enter_as_user("dash", tmp_path)
    assert "--group-add keep-groups" in said
    assert "--group-add 65534" not in said
    assert "chmod" not in said
    assert "usermod" not in said


@needs_root
@pytest.mark.parametrize("shell", SHELLS)
def test_an_open_that_fails_against_the_mode_is_no_matter_of_groups(
    shell: str, tmp_path: Path
) -> None:
    stand_in(tmp_path)
    kfd = tmp_path / "dev/kfd"
    kfd.unlink()
    kfd.mkdir(mode=0o777)  # cannot be opened for writing by anybody: EISDIR
    kfd.chmod(0o777)
    said = enter_as_user(shell, tmp_path, "1000,44,992")
    assert "Is a directory" in said
    assert "--device=/dev/kfd" in said
    assert "--group-add" not in said


def test_the_selftest_says_when_there_is_no_python(tmp_path: Path) -> None:
    ran = subprocess.run(
        ["/bin/sh", str(SELFTEST)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 1
    assert f'no "python" is found on PATH={tmp_path}' in ran.stderr
