from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from builder.host.access import DeviceAccess, device_access
from builder.host.snapshot import DeviceNode, HostSnapshot, read_snapshot

if TYPE_CHECKING:
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")


def node(path: Path, gid: int = 992, mode: int = 0o660) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.chown(path, 0, gid)
    path.chmod(mode)


def seen(path: str, gid: int, source: str | None = None) -> DeviceNode:
    return DeviceNode(path, source or path, 0, gid, 0o660)


def host(kfd: DeviceNode | None, *renders: DeviceNode) -> HostSnapshot:
    return HostSnapshot("6.1.0", nodes=((kfd,) if kfd else ()) + renders)


def test_a_host_without_nodes_gives_no_access(tmp_path: Path) -> None:
    snapshot = read_snapshot(tmp_path)
    assert snapshot.nodes == ()
    assert device_access(snapshot) == DeviceAccess((), ())
    assert device_access(snapshot).docker_arguments() == ()


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


def test_groups_are_distinct_and_ascending() -> None:
    found = device_access(
        host(seen("/dev/kfd", 992), seen("/dev/dri/renderD128", 44), seen("/dev/dri/renderD129", 9))
    )
    assert found.groups == (9, 44, 992)
    same = device_access(host(seen("/dev/kfd", 44), seen("/dev/dri/renderD128", 44)))
    assert same.groups == (44,)


def test_the_words_for_docker_name_each_node_once() -> None:
    words = device_access(host(seen("/dev/kfd", 44), seen("/dev/dri/renderD128", 992)))
    assert words.docker_arguments() == (
        "--device=/dev/kfd",
        "--device=/dev/dri/renderD128",
        "--group-add",
        "44",
        "--group-add",
        "992",
    )


def test_a_node_from_another_place_is_mapped_to_the_path_that_programs_know() -> None:
    access = device_access(host(seen("/dev/kfd", 44, source="/srv/fake/dev/kfd")))
    assert access.devices == ("/srv/fake/dev/kfd:/dev/kfd:rwm",)
    assert access.docker_arguments()[0] == "--device=/srv/fake/dev/kfd:/dev/kfd:rwm"
