"""Field cases whose answer is the run line: each is the kind, not the one input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from builder.cli.main import run as call
from builder.host.run import RunRequest, Target, plan_run, render_plan
from builder.host.snapshot import DeviceNode, Engine, Gpu, HostSnapshot, to_document

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = "ourorg/rocm-torch:7"


def nodes(*named: tuple[str, int], mode: int = 0o660) -> tuple[DeviceNode, ...]:
    return tuple(DeviceNode(path, gid=gid, mode=mode) for path, gid in named)


def words(snapshot: HostSnapshot, target: Target = "docker", **changes: Any) -> tuple[str, ...]:
    request = RunRequest(IMAGE, ("true",), target=target, terminal=False, **changes)
    return render_plan(plan_run(snapshot, request)).argv


def notes(snapshot: HostSnapshot, target: Target = "docker", **changes: Any) -> str:
    plan = plan_run(snapshot, RunRequest(IMAGE, target=target, **changes))
    return "\n".join(str(note) for note in plan.notes)


@pytest.mark.parametrize(
    ("kfd", "render", "wanted"),
    [
        pytest.param(109, 109, ["--group-add=109"], id="g1-02-video-only"),
        pytest.param(992, 44, ["--group-add=44", "--group-add=992"], id="g1-02-two-owners"),
        pytest.param(0, 993, ["--group-add=0", "--group-add=993"], id="g1-02-kfd-of-root"),
    ],
)
def test_the_owning_numbers_of_the_compute_nodes_are_added_and_no_other(
    kfd: int, render: int, wanted: list[str]
) -> None:
    named = (("/dev/kfd", kfd), ("/dev/dri/renderD128", render), ("/dev/dri/card0", 45))
    found = words(HostSnapshot(nodes=nodes(*named), uid=1000, process_groups=(1000, 45)))
    assert {"--device=/dev/kfd", "--device=/dev/dri"} <= set(found)
    assert [word for word in found if word.startswith("--group-add")] == wanted


@pytest.mark.parametrize(
    ("gid", "uid_map"),
    [
        pytest.param(65534, ("0 1000 1",), id="g1-03-rootless-podman"),
        pytest.param(992, (), id="g1-03-seen-from-the-host"),
    ],
)
def test_g1_03_rootless_podman_keeps_groups(gid: int, uid_map: tuple[str, ...]) -> None:
    snapshot = HostSnapshot(
        nodes=nodes(("/dev/kfd", gid), ("/dev/dri/renderD128", gid)),
        uid_map=uid_map,
        engines=(Engine("podman", rootless=True, runtime="crun"),),
    )
    found = words(snapshot, "podman")
    assert [word for word in found if "group-add" in word] == ["--group-add=keep-groups"]
    said = notes(snapshot, "podman")
    assert "usermod" not in said
    assert "chmod" not in said


@pytest.mark.parametrize("target", ["docker", "podman", "compose", "devcontainer"])
def test_g1_12_wsl_gets_dxg_and_never_kfd(target: Target) -> None:
    snapshot = HostSnapshot(
        kernel="6.6.87.2-microsoft-standard-WSL2",
        modules=(),
        nodes=nodes(("/dev/dxg", 0), mode=0o666),
    )
    plan = plan_run(snapshot, RunRequest(IMAGE, target=target))
    text = render_plan(plan).text
    assert "/dev/dxg" in text
    assert "/dev/kfd" not in text
    for wrong in ("modprobe amdgpu", "amdgpu-dkms"):
        assert wrong not in text + notes(snapshot, target)


@pytest.mark.parametrize("asked", [("video", "render"), ("render", "44"), ("992", "video")])
def test_g1_16_group_names_become_the_numbers_of_the_host(asked: tuple[str, ...]) -> None:
    snapshot = HostSnapshot(
        groups={"render": 992, "video": 44},
        nodes=nodes(("/dev/kfd", 992), ("/dev/dri/renderD128", 992)),
    )
    found = [word for word in words(snapshot, groups=asked) if word.startswith("--group-add")]
    assert found == ["--group-add=44", "--group-add=992"]


def test_g1_18_the_default_is_the_whole_folder_and_a_missing_node_is_named() -> None:
    snapshot = HostSnapshot(
        nodes=nodes(("/dev/kfd", 109), ("/dev/dri/renderD128", 109), mode=0o666),
        gpus=(
            Gpu(0, "gfx90a", node=1, render_minor=128),
            Gpu(1, "gfx90a", node=2, render_minor=129),
        ),
    )
    assert "--device=/dev/dri" in words(snapshot)
    said = notes(snapshot)
    assert "RENDER_NODE_MISSING" in said
    assert "renderD129" in said
    assert "renderD129" not in notes(snapshot, gpus=(0,))


@pytest.mark.parametrize("target", ["docker", "podman"])
def test_g1_24_who_cannot_open_is_told_and_the_container_still_starts(target: Target) -> None:
    snapshot = HostSnapshot(
        nodes=nodes(("/dev/kfd", 0), ("/dev/dri/renderD128", 993)),
        uid=998,
        process_groups=(998,),
        engines=(Engine(target),),
    )
    said = notes(snapshot, target)
    assert "the caller, cannot open" in said
    assert "container root can" in said
    assert "--device" not in said
    assert "--device=/dev/kfd" in words(snapshot, target)


def test_g5_12_a_device_is_asked_by_name_only_where_a_specification_is() -> None:
    snapshot = HostSnapshot(nodes=nodes(("/dev/kfd", 109), ("/dev/dri/renderD128", 109)))
    found = words(snapshot)
    assert "--device=/dev/kfd" in found
    assert not any("amd.com" in word or word.startswith("--gpus") for word in found)


GPU_NODE = HostSnapshot(nodes=nodes(("/dev/kfd", 109), ("/dev/dri/renderD128", 109)))
HPC: tuple[Target, ...] = ("apptainer", "slurm")


def hpc(target: Target, **changes: Any) -> str:
    request = RunRequest("/images/t.sif", ("python", "t.py"), target=target, **changes)
    return render_plan(plan_run(GPU_NODE, request)).text


@pytest.mark.parametrize("target", HPC)
def test_g6_01_and_02_the_devices_alone_are_bound_unless_asked_otherwise(target: Target) -> None:
    text = hpc(target)
    assert "--bind=/dev/kfd,/dev/dri" in text
    assert "--containall" in text
    assert "--rocm" not in text
    assert "--rocm" in hpc(target, host_libraries=True)


@pytest.mark.parametrize("target", HPC)
def test_g6_05_caches_of_miopen_are_the_job_s_own_and_made_beforehand(target: Target) -> None:
    text = hpc(target, scratch="/local")
    made, _, started = text.partition("apptainer exec")
    for variable, folder in (
        ("MIOPEN_USER_DB_PATH", "miopen-db"),
        ("MIOPEN_CUSTOM_CACHE_DIR", "miopen-cache"),
    ):
        assert f"--env={variable}=/tmp/rocm-torch/{folder}" in started
        assert f"/tmp/rocm-torch/{folder}" in made
    assert "/local" in made


def test_g6_07_a_missing_plugin_on_slingshot_is_told_before_the_job_runs() -> None:
    said = notes(GPU_NODE, "slurm", nodes=2, fabric="cxi")
    assert "RCCL_TCP_FALLBACK" in said
    assert "Socket" in said
    assert "cxi" in said
    plugin = "/opt/site/rccl"
    assert "RCCL" not in notes(GPU_NODE, "slurm", nodes=2, fabric="cxi", fabric_plugin=plugin)
    assert "NCCL_DEBUG=INFO" in hpc("slurm", nodes=2, fabric="cxi")


@pytest.mark.parametrize("target", HPC)
def test_g6_08_no_path_of_the_host_with_a_version_is_bound(target: Target) -> None:
    binds = [word for word in hpc(target).split() if word.startswith("--bind=")]
    assert binds == ["--bind=/dev/kfd,/dev/dri"]


def test_g6_09_the_monitor_of_libfabric_is_set_on_slingshot() -> None:
    assert "APPTAINERENV_FI_MR_CACHE_MONITOR=userfaultfd" in hpc("slurm", fabric="cxi")
    assert "FI_MR_CACHE_MONITOR" not in hpc("slurm")


def test_a_saved_host_is_planned_for_on_a_machine_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "host.json"
    state.write_text(json.dumps(to_document(GPU_NODE)), "utf-8")
    printed = ("run", "--print", "docker", "--json", IMAGE, "--", "python", "-c", "1")
    assert call([*printed[:3], "--host-state", str(state), *printed[3:]]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "rocm-torch/run/v1"
    assert "--group-add=109" in answer["argv"]
    assert answer["argv"][-4:] == [IMAGE, "python", "-c", "1"]
    assert {"--device=/dev/kfd", "--rm"} <= {one["argument"] for one in answer["reasons"]}
    assert call([*printed[:3], "--device-root", str(tmp_path), *printed[3:]]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["code"] == "NO_GPU_NODE"
    assert "--host-state" in problem["fix"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--host-state", "none.json"), "--print"),
        (("--print", "docker", "--host-state", "none.json"), "cannot be read"),
        (("--print", "lxd"), "docker, podman"),
        (("--engine", "lxd"), "docker, podman"),
        (("--print", "docker", "--engine", "podman"), "one of the two"),
        (("--print", "docker", "--gpu", "all"), "--gpu 0,2"),
        (("--print", "docker", "--env", "=1"), "NAME=VALUE"),
        (("--print", "slurm", "--fabric", "opa"), "cxi, verbs"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(
    options: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", *options, IMAGE]) == 64
    assert what in capsys.readouterr().err
