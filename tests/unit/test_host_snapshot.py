from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.host.snapshot import (
    SCHEMA,
    DeviceNode,
    Engine,
    Gpu,
    HostSnapshot,
    Place,
    ToolOutput,
    from_document,
    read_snapshot,
    to_document,
)
from builder.host.snapshot.gpus import gfx_of
from builder.host.snapshot.read import Surroundings

ROOT = Path(__file__).parents[2]
words = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=6)
maybe_words, numbers = st.none() | words, st.integers(0, 70_000)
snapshots = st.builds(
    HostSnapshot,
    kernel=words,
    machine=words,
    os_id=maybe_words,
    uid=numbers,
    process_groups=st.lists(numbers, max_size=3).map(tuple),
    db_groups=st.none() | st.lists(numbers, max_size=3).map(tuple),
    groups=st.dictionaries(st.sampled_from(["video", "render"]), numbers),
    nodes=st.lists(
        st.builds(
            DeviceNode,
            path=st.sampled_from(["/dev/kfd", "/dev/dri/renderD128", "/dev/dxg"]),
            gid=numbers,
            mode=st.integers(0, 0o777),
            open_errno=st.sampled_from([None, "", "EACCES", "EINVAL", "ENOMEM"]),
        ),
        max_size=3,
    ).map(tuple),
    gpus=st.lists(
        st.builds(Gpu, index=numbers, gfx=maybe_words, integrated=st.none() | st.booleans()),
        max_size=2,
    ).map(tuple),
    engines=st.lists(st.builds(Engine, kind=words, rootless=st.booleans()), max_size=2).map(tuple),
    modules=st.none() | st.lists(words, max_size=2).map(tuple),
    places=st.dictionaries(words, st.builds(Place, path=words, free_bytes=st.none() | numbers)),
    tools=st.dictionaries(words, st.builds(ToolOutput, name=words, status=st.none() | numbers)),
    environment=st.dictionaries(st.sampled_from(["HIP_VISIBLE_DEVICES", "HSA_X"]), words),
)


@given(snapshots)
def test_a_saved_snapshot_is_read_back_as_it_was(snapshot: HostSnapshot) -> None:
    text = json.dumps(to_document(snapshot))
    assert from_document(json.loads(text)) == snapshot


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "schema"),
        ({"schema": SCHEMA, "colour": 1}, "colour"),
        ({"schema": SCHEMA, "uid": "root"}, "uid"),
        ({"schema": SCHEMA, "uid": True}, "uid"),
        ({"schema": SCHEMA, "nodes": [{"path": 5}]}, "nodes[0].path"),
        ({"schema": SCHEMA, "nodes": [{"way": ""}]}, "nodes[0].way"),
        ({"schema": SCHEMA, "nodes": [{}]}, "nodes[0]"),
        ({"schema": SCHEMA, "nodes": ["kfd"]}, "nodes[0]"),
        ({"schema": SCHEMA, "environment": []}, "environment"),
    ],
)
def test_a_document_that_is_no_snapshot_says_what_is_wrong(
    document: dict[str, object], told: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        from_document(document)


@pytest.mark.parametrize(
    ("version", "gfx"),
    [(110000, "gfx1100"), (90010, "gfx90a"), (90402, "gfx942"), (120001, "gfx1201"), (0, None)],
)
def test_a_target_is_read_from_the_number_of_the_topology(version: int, gfx: str | None) -> None:
    assert gfx_of(version) == gfx


def test_the_topology_gives_gpus_with_their_place_and_memory(tmp_path: Path) -> None:
    write(
        tmp_path,
        "sys/class/kfd/kfd/topology/nodes/0/properties",
        "cpu_cores_count 16\nsimd_count 0\n",
    )
    write(
        tmp_path,
        "sys/class/kfd/kfd/topology/nodes/1/properties",
        "cpu_cores_count 0\nsimd_count 192\ngfx_target_version 110000\ndrm_render_minor 128\n"
        "vendor_id 4098\ndevice_id 29772\nlocation_id 768\ndomain 0\nunique_id 81985529216486895\n",
    )
    write(
        tmp_path,
        "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties",
        "heap_type 1\nsize_in_bytes 25753026560\n",
    )
    write(tmp_path, "sys/class/drm/renderD128/device/current_link_width", "8\n")
    write(tmp_path, "sys/class/drm/renderD128/device/max_link_width", "16\n")
    snapshot = read_snapshot(tmp_path)
    assert snapshot.kfd_gpu_nodes == 1
    (gpu,) = snapshot.gpus
    assert (gpu.gfx, gpu.render_minor, gpu.vram_mib) == ("gfx1100", 128, 24560)
    assert (gpu.pci, gpu.pci_id, gpu.uuid) == ("0000:03:00.0", "1002:744c", "GPU-0123456789abcdef")
    assert (gpu.link_width, gpu.link_width_max) == (8, 16)


NODE = "sys/class/kfd/kfd/topology/nodes"


def test_a_node_that_may_not_be_read_is_counted_and_is_no_gpu_that_can_be_used(
    tmp_path: Path,
) -> None:
    write(tmp_path, f"{NODE}/0/properties", "cpu_cores_count 16\nsimd_count 0\n")
    write(tmp_path, f"{NODE}/2/properties", "simd_count 416\ngfx_target_version 90010\n")
    # The kernel refuses with EPERM, which root cannot be given by a mode: EISDIR stands in.
    (tmp_path / NODE / "1/properties").mkdir(parents=True)
    snapshot = read_snapshot(tmp_path)
    assert [gpu.node for gpu in snapshot.gpus] == [2]
    assert snapshot.kfd_gpu_nodes == 2


@pytest.mark.parametrize(
    ("version", "cores", "integrated"),
    [
        (110000, 0, False),
        (110003, 0, True),
        (90012, 0, True),
        (90012, 8, True),
        (90402, 0, None),
        (0, 0, None),
        (110501, 0, True),
    ],
)
def test_an_integrated_gpu_is_told_by_its_target_whatever_the_kernel_s_age(
    tmp_path: Path, version: int, cores: int, integrated: bool | None
) -> None:
    write(
        tmp_path,
        f"{NODE}/1/properties",
        f"cpu_cores_count {cores}\nsimd_count 24\ngfx_target_version {version}\n",
    )
    (gpu,) = read_snapshot(tmp_path).gpus
    assert gpu.integrated is integrated


def test_an_empty_root_is_a_snapshot_of_nothing(tmp_path: Path) -> None:
    snapshot = read_snapshot(tmp_path, Surroundings(uid=7))
    assert not snapshot.nodes
    assert not snapshot.gpus
    assert snapshot.kfd_gpu_nodes is None
    assert snapshot.modules is None
    assert snapshot.container is None


def test_a_container_is_told_by_what_it_leaves(tmp_path: Path) -> None:
    assert read_snapshot(tmp_path, Surroundings({"APPTAINER_CONTAINER": "x.sif"})).container == (
        "apptainer"
    )
    write(tmp_path, ".dockerenv", "")
    assert read_snapshot(tmp_path).container == "docker"
    write(tmp_path, "run/.containerenv", "")
    assert read_snapshot(tmp_path).container == "podman"


def test_only_variables_that_concern_the_gpu_are_kept(tmp_path: Path) -> None:
    around = Surroundings({"HIP_VISIBLE_DEVICES": "", "SECRET": "x", "LD_LIBRARY_PATH": "/a"})
    kept = read_snapshot(tmp_path, around).environment
    assert kept == {"HIP_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": "/a"}


def test_a_snapshot_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; import builder.host.snapshot; "
        "print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    out = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(eval(out.stdout)) <= {"builder", "__main__"}  # noqa: S307 - our own list of names


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
