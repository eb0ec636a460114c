from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder.errors import RefusedError
from builder.pipeline.assets import doctor_files, read_assets, stage
from builder.pipeline.workspace import Workspace
from builder.plan.inputs import AssetFile

if TYPE_CHECKING:
    from builder.pipeline.assets import Assets

FILES = {
    "usr/bin/tool": AssetFile(b"#!/bin/sh\n", True),
    "usr/lib/a/data": AssetFile(b"x" * 10_000, False),
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    for name in ("rootfs/usr/bin/tool", "selftest/rocm_torch_selftest/cli.py"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True)
        path.write_text("content\n")
    return Workspace(tmp_path)


def looks(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return modes, times and contents of everything in a folder, itself included."""
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            b"" if path.is_dir() else path.read_bytes(),
        )
        for path in (folder, *folder.rglob("*"))
    }


def without_doctor(assets: Assets) -> dict[str, AssetFile]:
    doctor = doctor_files().keys()
    return {name: file for name, file in assets["rootfs"].items() if name not in doctor}


def refusal(workspace: Workspace) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        read_assets(workspace)
    return caught.value


def test_assets_are_read_by_name_with_content_and_executable_bit(workspace: Workspace) -> None:
    (workspace.images / "rootfs/usr/bin/tool").chmod(0o700)
    assets = read_assets(workspace)
    assert without_doctor(assets) == {"usr/bin/tool": AssetFile(b"content\n", True)}
    assert dict(assets["selftest"]) == {"cli.py": AssetFile(b"content\n", False)}


@pytest.mark.parametrize(("mode", "executable"), [(0o600, False), (0o664, False), (0o755, True)])
def test_only_the_executable_bit_of_a_mode_counts(
    workspace: Workspace, mode: int, executable: bool
) -> None:
    (workspace.images / "rootfs/usr/bin/tool").chmod(mode)
    assert read_assets(workspace)["rootfs"]["usr/bin/tool"].executable is executable


def test_caches_are_left_out_and_a_folder_above_does_not_matter(tmp_path: Path) -> None:
    deep = Workspace(tmp_path / ".pytest_cache" / "copy")
    for name in ("rootfs/a", "selftest/rocm_torch_selftest/__pycache__/a.pyc"):
        path = deep.images / name
        path.parent.mkdir(parents=True)
        path.write_text("a")
    (deep.images / "selftest/rocm_torch_selftest/a.py").write_text("a")
    assets = read_assets(deep)
    assert list(without_doctor(assets)) == ["a"]
    assert list(assets["selftest"]) == ["a.py"]


@pytest.mark.parametrize("target", ["tool", "..", "nowhere", "/etc/hostname"])
def test_a_link_is_refused_whatever_it_points_to(workspace: Workspace, target: str) -> None:
    link = workspace.images / "rootfs/usr/bin/link"
    link.symlink_to(target)
    problem = refusal(workspace).problems[0]
    assert (problem.code, problem.where) == ("ASSET_NOT_A_FILE", str(link))


def test_a_pipe_is_refused(workspace: Workspace) -> None:
    os.mkfifo(workspace.images / "rootfs/pipe")
    assert refusal(workspace).problems[0].code == "ASSET_NOT_A_FILE"


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    assert refusal(Workspace(tmp_path)).problems[0].code == "ASSETS_MISSING"


def test_what_is_staged_is_the_same_under_every_umask(tmp_path: Path) -> None:
    found = []
    for umask in (0o022, 0o077, 0o000):
        before = os.umask(umask)
        try:
            found.append(looks(stage(Workspace(tmp_path / str(umask)), "rootfs", FILES)))
        finally:
            os.umask(before)
    assert found[0] == found[1] == found[2]
    modes = {name: stat.S_IMODE(entry[0]) for name, entry in found[0].items()}
    assert modes["usr/bin/tool"] == 0o755
    assert modes["usr/lib/a/data"] == 0o644
    assert modes["usr"] == modes["."] == 0o755


def test_the_same_content_is_one_folder_and_another_content_another(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    folder = stage(workspace, "rootfs", FILES)
    again = stage(workspace, "rootfs", dict(reversed(FILES.items())))
    other = stage(workspace, "rootfs", {**FILES, "usr/bin/tool": AssetFile(b"", True)})
    assert again == folder != other
    assert folder.parent == other.parent == workspace.state / "stage"


def test_a_change_that_keeps_the_size_changes_the_time_of_the_file(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    times = {
        (stage(workspace, "a", {"f": AssetFile(content, False)}) / "f").stat().st_mtime_ns
        for content in (b"one", b"two")
    }
    assert len(times) == 2
    assert max(times) < 315_532_800 * 10**9 + 86_400 * 10**9


def test_threads_that_stage_at_once_get_one_whole_folder(tmp_path: Path) -> None:
    workspace, found = Workspace(tmp_path), list[Path]()
    files = {f"d{number % 7}/f{number}": AssetFile(b"x", False) for number in range(60)}
    ready = threading.Barrier(6)

    def one() -> None:
        ready.wait()
        found.append(stage(workspace, "rootfs", files))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1
    assert len([path for path in found[0].rglob("*") if path.is_file()]) == 60
    assert list((workspace.state / "stage").iterdir()) == [found[0]]
