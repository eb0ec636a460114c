from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from builder.host.run import RunRequest, plan_run
from builder.host.snapshot import DeviceNode, read_snapshot

if TYPE_CHECKING:
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")


def node(path: Path, gid: int = 992, mode: int = 0o660) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.chown(path, 0, gid)
    path.chmod(mode)


def test_a_host_without_nodes_gives_no_access(tmp_path: Path) -> None:
    snapshot = read_snapshot(tmp_path)
    assert snapshot.nodes == ()
    plan = plan_run(snapshot, RunRequest("image"))
    assert not plan.has_gpu
    assert plan.groups == ()


def test_files_and_folders_that_are_no_devices_are_not_nodes(tmp_path: Path) -> None:
    (tmp_path / "dev/dri/renderD129").mkdir(parents=True)
    (tmp_path / "dev/kfd").write_text("")
    (tmp_path / "dev/dri/renderD128").write_text("")
    (tmp_path / "dev/dri/renderD130").symlink_to("nowhere")
    assert read_snapshot(tmp_path).nodes == ()


def test_a_node_with_another_name_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "dev/dri").mkdir(parents=True)
    for name in ("renderD", "renderDx", "renderD128.old", "card0"):
        (tmp_path / "dev/dri" / name).write_text("")
    assert read_snapshot(tmp_path).nodes == ()


@as_root
def test_nodes_are_found_with_owner_and_mode(tmp_path: Path) -> None:
    node(tmp_path / "dev/kfd", gid=109)
    node(tmp_path / "dev/dri/renderD128", mode=0o666)
    snapshot = read_snapshot(tmp_path)
    assert snapshot.kfd == DeviceNode("/dev/kfd", f"{tmp_path}/dev/kfd", 0, 109, 0o660)
    assert snapshot.render_nodes[0].mode == 0o666
    assert snapshot.machine == os.uname().machine


@as_root
def test_render_nodes_are_ordered_by_number(tmp_path: Path) -> None:
    for number in (1000, 129, 128, 99):
        node(tmp_path / f"dev/dri/renderD{number}")
    found = [one.path for one in read_snapshot(tmp_path).render_nodes]
    assert found == [f"/dev/dri/renderD{number}" for number in (99, 128, 129, 1000)]


@as_root
def test_a_file_between_devices_is_left_out(tmp_path: Path) -> None:
    node(tmp_path / "dev/dri/renderD128")
    (tmp_path / "dev/dri/renderD129").write_text("")
    assert [one.path for one in read_snapshot(tmp_path).nodes] == ["/dev/dri/renderD128"]
