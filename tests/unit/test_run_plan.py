"""The plan of a container for a host, and the line or file of each target."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from builder.cli.main import run
from builder.errors import BadCallError, RefusedError
from builder.host.run import TARGETS, RunRequest, Target, plan_run, render_plan
from builder.host.run.model import Mount
from builder.host.snapshot import DeviceNode, Engine, Gpu, HostSnapshot

if TYPE_CHECKING:
    import random

IMAGE = "ourorg/rocm-torch:7"
TRAIN = ("python", "train.py", "--name", "two words", "$HOME")
NUMBERS = st.sampled_from([0, 44, 109, 992, 65534])


def node(path: str, gid: int = 992, **changes: Any) -> DeviceNode:
    return DeviceNode(path, gid=gid, **changes)


def host(*minors: int, gid: int = 992, **changes: Any) -> HostSnapshot:
    """Return a host with kfd, these render nodes, and a GPU for each."""
    values: dict[str, Any] = {
        "nodes": (node("/dev/kfd", gid), *(node(f"/dev/dri/renderD{m}", gid) for m in minors)),
        "gpus": tuple(
            Gpu(index, "gfx942", node=index + 1, render_minor=minor)
            for index, minor in enumerate(minors)
        ),
        "uid": 1000,
        "process_groups": (gid, 1000),
    }
    return HostSnapshot(**{**values, **changes})


def line(snapshot: HostSnapshot, target: Target = "docker", **changes: Any) -> list[str]:
    values: dict[str, Any] = {"cache": "", "shm_size": "16g", "command": ("true",), **changes}
    values |= {"interactive": False, "terminal": False, "target": target}
    return list(render_plan(plan_run(snapshot, RunRequest(IMAGE, **values))).argv)


def told(snapshot: HostSnapshot, target: Target = "docker", **changes: Any) -> dict[str, str]:
    plan = plan_run(snapshot, RunRequest(IMAGE, target=target, **changes))
    return {note.code: str(note) for note in plan.notes}


def document(target: Target, snapshot: HostSnapshot, **changes: Any) -> Any:
    text = render_plan(plan_run(snapshot, RunRequest(IMAGE, target=target, **changes))).text
    return json.loads(text) if target == "devcontainer" else yaml.safe_load(text)


WORKSTATION = host(
    128,
    kernel="6.8.0-50-generic",
    os_id="ubuntu",
    os_version="24.04",
    engines=(Engine("docker", version="28.2.2", runtime="runc"),),
)
SERVER = host(
    *range(128, 136),
    gid=105,
    os_id="rhel",
    os_version="9.4",
    selinux="Enforcing",
    container_use_devices=True,
    engines=(Engine("podman", version="5.4.0", runtime="crun"),),
)
LAPTOP = host(128, 129, gid=109, engines=(Engine("docker", version="29.1.0"),))


def test_a_workstation_gets_two_devices_one_group_and_shared_memory() -> None:
    assert line(WORKSTATION)[2:] == [
        "--rm",
        "--device=/dev/kfd",
        "--device=/dev/dri",
        "--group-add=992",
        "--shm-size=16g",
        IMAGE,
        "true",
    ]
    assert told(WORKSTATION) == {}


def test_a_server_with_podman_gets_each_node_by_itself_and_no_selinux_option() -> None:
    words = line(SERVER, "podman")
    assert words[3:12] == [
        "--device=/dev/kfd",
        *(f"--device=/dev/dri/renderD{minor}" for minor in range(128, 136)),
    ]
    assert words[12:14] == ["--group-add=105", "--shm-size=16g"]
    assert told(SERVER, "podman") == {}


def test_a_laptop_with_two_gpus_gets_both_and_one_of_them_when_asked() -> None:
    assert line(LAPTOP)[3:6] == ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=109"]
    assert line(LAPTOP, gpus=(1,))[3:5] == ["--device=/dev/kfd", "--device=/dev/dri/renderD129"]
    assert told(LAPTOP) == {}


def test_a_fresh_cdi_specification_takes_the_place_of_nodes_and_not_of_groups() -> None:
    fresh = replace(LAPTOP, cdi_specs=("/etc/cdi/amd.json",), cdi_stale=False)
    targets: tuple[Target, ...] = ("docker", "podman")
    for target in targets:
        words = line(fresh, target)
        assert words[3:5] == ["--device=amd.com/gpu=all", "--group-add=109"]
    service = document("compose", fresh)["services"]["torch"]
    assert service["devices"] == ["amd.com/gpu=all"]
    assert service["group_add"] == ["109"]


@pytest.mark.parametrize(
    "changes",
    [
        {"cdi_stale": True},
        {"cdi_stale": None},
        {"cdi_specs": ()},
        {"engines": (Engine("docker", version="24.0.9"),)},
    ],
)
def test_a_cdi_specification_that_is_old_unknown_or_unread_is_not_used(
    changes: dict[str, Any],
) -> None:
    fresh = replace(LAPTOP, cdi_specs=("/etc/cdi/amd.json",), cdi_stale=False)
    assert "--device=/dev/kfd" in line(replace(fresh, **changes))


def test_an_old_cdi_specification_is_told_with_the_command_that_renews_it() -> None:
    stale = replace(LAPTOP, cdi_specs=("/etc/cdi/amd.json",), cdi_stale=True)
    assert "amd-ctk cdi generate" in told(stale)["CDI_STALE"]


def test_gpus_are_chosen_by_the_topology_and_not_by_the_order_of_nodes() -> None:
    swapped = host(128, 129, gpus=(Gpu(0, render_minor=129), Gpu(1, render_minor=128)))
    assert line(swapped, gpus=(0,))[4] == "--device=/dev/dri/renderD129"


def test_partitions_are_chosen_each_by_its_own_index() -> None:
    parts = host(*range(128, 136))
    chosen = line(parts, gpus=(0, 5))
    assert [word for word in chosen if "renderD" in word] == [
        "--device=/dev/dri/renderD128",
        "--device=/dev/dri/renderD133",
    ]


def test_gpus_behind_one_render_node_come_together_and_that_is_told() -> None:
    shared = host(128, gpus=(Gpu(0, render_minor=128), Gpu(1, render_minor=128)))
    assert "GPU 1 comes along" in told(shared, gpus=(0,))["RENDER_NODE_SHARED"]


@pytest.mark.parametrize(
    ("gpus", "code"), [((7,), "GPU_UNKNOWN"), ((1,), "RENDER_NODE_MISSING")], ids=str
)
def test_a_gpu_that_cannot_be_passed_is_refused(gpus: tuple[int, ...], code: str) -> None:
    half = host(128, gpus=(Gpu(0, render_minor=128), Gpu(1, render_minor=129)))
    with pytest.raises(RefusedError) as caught:
        line(half, gpus=gpus)
    assert caught.value.problems[0].code == code


@pytest.mark.parametrize("runtime", ["crun", None])
def test_rootless_podman_keeps_groups_and_adds_no_number(runtime: str | None) -> None:
    rootless = replace(SERVER, engines=(Engine("podman", rootless=True, runtime=runtime),))
    groups = [word for word in line(rootless, "podman") if "group-add" in word]
    assert groups == ["--group-add=keep-groups"]
    assert told(rootless, "podman") == {}


def test_rootless_podman_without_crun_is_told_that_keep_groups_needs_it() -> None:
    rootless = replace(SERVER, engines=(Engine("podman", rootless=True, runtime="runc"),))
    assert "--runtime=crun" in told(rootless, "podman")["KEEP_GROUPS_NEEDS_CRUN"]


def test_a_caller_outside_the_group_is_told_where_the_container_has_only_its_groups() -> None:
    rootless = replace(
        SERVER,
        process_groups=(1000,),
        engines=(Engine("podman", rootless=True, runtime="crun"),),
    )
    assert "group 105" in told(rootless, "podman")["CALLER_NOT_IN_GROUP"]
    assert "group 105" in told(rootless, "apptainer")["CALLER_NOT_IN_GROUP"]


@pytest.mark.parametrize(
    ("selinux", "boolean", "option"),
    [
        ("Enforcing", False, True),
        ("Enforcing", True, False),
        ("Permissive", False, False),
        (None, None, False),
    ],
)
def test_selinux_has_an_option_only_where_it_is_in_the_way(
    selinux: str | None, boolean: bool | None, option: bool
) -> None:
    found = replace(SERVER, selinux=selinux, container_use_devices=boolean)
    assert ("--security-opt=label=disable" in line(found, "podman")) is option
    notes = told(found, "podman")
    assert ("SELINUX_DEVICES" in notes) is option
    assert not option or "setsebool -P container_use_devices=1" in notes["SELINUX_DEVICES"]


def test_a_folder_for_caches_is_relabelled_where_selinux_looks_and_named_to_the_image() -> None:
    words = line(SERVER, "podman", cache="/data/cache")
    assert "--volume=/data/cache:/home/rocm/.cache:z" in words
    assert "--env=ROCM_TORCH_CACHE_DIR=/home/rocm/.cache" in words
    assert "--volume=/data/cache:/home/rocm/.cache" in line(LAPTOP, cache="/data/cache")


def test_the_volume_for_caches_is_the_caller_s_own() -> None:
    words = {uid: line(replace(LAPTOP, uid=uid), cache=None) for uid in (1000, 1001)}
    assert "--volume=rocm-torch-cache-1000:/home/rocm/.cache" in words[1000]
    assert "--volume=rocm-torch-cache-1001:/home/rocm/.cache" in words[1001]


def test_another_user_gets_no_volume_that_it_cannot_write_to() -> None:
    assert not [w for w in line(LAPTOP, cache=None, user="1234") if w.startswith("--volume")]
    assert "1234" in told(LAPTOP, user="1234")["CACHE_NOT_KEPT"]
    assert "--user=1234" in line(LAPTOP, user="1234")


def test_an_engine_that_maps_numbers_goes_without_that() -> None:
    mapped = replace(LAPTOP, engines=(Engine("docker", user_namespaces=True),))
    assert "--userns=host" in line(mapped)
    assert "--userns=host" not in line(LAPTOP)


def test_rdma_adds_the_verbs_and_locked_memory() -> None:
    words = line(LAPTOP, rdma=True)
    assert "--device=/dev/infiniband" in words
    assert "--ulimit=memlock=-1" in words
    with pytest.raises(BadCallError, match="NO_RDMA"):
        line(replace(LAPTOP, files={"/dev/infiniband": False}), rdma=True)


def test_ipc_of_the_host_takes_the_place_of_a_size() -> None:
    words = line(LAPTOP, ipc_host=True)
    assert "--ipc=host" in words
    assert not any("shm-size" in word for word in words)
    assert document("kubernetes", LAPTOP, ipc_host=True)["spec"]["hostIPC"] is True


def test_variables_without_a_value_are_left_out() -> None:
    words = line(LAPTOP, environment=(("HIP_VISIBLE_DEVICES", ""), ("A", "1")))
    assert [word for word in words if word.startswith("--env")] == ["--env=A=1"]


@pytest.mark.parametrize("target", ["docker", "podman"])
def test_wsl_gets_dxg_with_its_libraries_and_never_kfd(target: Target) -> None:
    wsl = HostSnapshot(
        kernel="6.6.87.2-microsoft-standard-WSL2",
        nodes=(node("/dev/dxg", 0, mode=0o666),),
        files={"/opt/rocm/lib/librocdxg.so": True},
    )
    words = line(wsl, target)
    assert "--device=/dev/dxg" in words
    assert "--volume=/usr/lib/wsl:/usr/lib/wsl:ro" in words
    assert "--env=HSA_ENABLE_DXG_DETECTION=1" in words
    assert not any("kfd" in word or "group-add" in word for word in words)


def test_a_group_without_a_number_here_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(BadCallError, match="render=992"):
        line(replace(LAPTOP, groups={"render": 992}), groups=("redner",))


def test_compose_has_what_the_line_has() -> None:
    content = document("compose", LAPTOP, command=TRAIN, rdma=True, user="1000:1000")
    service = content["services"]["torch"]
    assert service["devices"] == [
        "/dev/kfd:/dev/kfd",
        "/dev/dri:/dev/dri",
        "/dev/infiniband:/dev/infiniband",
    ]
    assert service["group_add"] == ["109"]
    assert service["shm_size"] == "16g"
    assert service["user"] == "1000:1000"
    assert service["ulimits"] == {"memlock": -1}
    assert service["command"] == [*TRAIN[:-1], "$$HOME"]
    assert content["volumes"] == {"rocm-torch-cache-1000": {"name": "rocm-torch-cache-1000"}}


def test_kubernetes_asks_the_plugin_for_gpus_and_adds_groups_by_number() -> None:
    spec = document("kubernetes", LAPTOP, command=TRAIN)["spec"]
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == {"amd.com/gpu": 2}
    assert container["args"] == list(TRAIN)
    assert container["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["securityContext"]["supplementalGroups"] == [109]
    shm = next(volume for volume in spec["volumes"] if volume["name"] == "shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert "/dev/" not in json.dumps(spec).replace("/dev/shm", "")


@pytest.mark.parametrize("word", ["\x85", "a\u2028b", "n\u00e4he", "line\nend"])
def test_a_word_of_the_command_is_the_same_in_a_document(word: str) -> None:
    (container,) = document("kubernetes", LAPTOP, command=(word,))["spec"]["containers"]
    assert container["args"] == [word]


def test_kubernetes_mounts_what_is_read_only_so() -> None:
    mounts = (
        Mount("/data", "/data", "--volume", read_only=True),
        Mount("/out", "/out", "--volume"),
    )
    (container,) = document("kubernetes", LAPTOP, mounts=mounts)["spec"]["containers"]
    asked = {one["mountPath"]: one.get("readOnly") for one in container["volumeMounts"]}
    assert (asked["/data"], asked["/out"]) == (True, None)


def test_options_of_python_are_no_options_of_torchrun(tmp_path: Path) -> None:
    calls, _ = played(tmp_path, slurm(("python", "-u", "train.py"), **JOBS[2]))
    (given,) = [call for call in calls if call[0] == "apptainer"]
    assert given[-4:] == ["--no-python", "python", "-u", "train.py"]


def test_kubernetes_without_a_node_of_the_pool_says_where_the_groups_come_from() -> None:
    assert "--host-state" in told(HostSnapshot(), "kubernetes")["GROUPS_UNKNOWN"]
    with pytest.raises(BadCallError, match="USER_NOT_A_NUMBER"):
        document("kubernetes", LAPTOP, user="rocm")


def test_a_devcontainer_hands_docker_the_arguments_of_the_line() -> None:
    arguments = document("devcontainer", LAPTOP, cache="")["runArgs"]
    assert arguments == line(LAPTOP)[3:-2]


def slurm(command: tuple[str, ...] = TRAIN, **changes: Any) -> str:
    request = RunRequest("/images/t.sif", command, target="slurm", **changes)
    return render_plan(plan_run(HostSnapshot(), request)).text


JOBS: list[dict[str, Any]] = [
    {},
    {"scratch": "/local disk"},
    {"nodes": 2, "fabric": "cxi", "fabric_plugin": "/opt/site rccl"},
]


@pytest.mark.parametrize("changes", JOBS, ids=["one-node", "scratch", "two-nodes"])
def test_shellcheck_finds_no_fault_with_the_batch_script(changes: dict[str, Any]) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    checked = subprocess.run(
        [program, "--shell=bash", "--exclude=SC2016", "-"],
        input=slurm(**changes),
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


RECORDER = """#!/bin/sh
printf '%s\\n' "{name}" "$@" --end-- >>"$RECORD"
{then}
"""


def played(tmp_path: Path, text: str) -> tuple[list[list[str]], dict[str, str]]:
    """Run the script with stand-ins of the cluster's programs; return what Apptainer was given."""
    programs = {
        "srun": 'shift; exec "$@"',
        "apptainer": 'env | grep -a "^APPTAINERENV_" >"$RECORD.env"; ls -R "$JOB_DIR" >&2; true',
        "scontrol": "echo nid001; echo nid002",
    }
    for name, then in programs.items():
        program = tmp_path / name
        program.write_text(RECORDER.format(name=name, then=then), "utf-8")
        program.chmod(0o755)
    record = tmp_path / "record"
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RECORD": str(record),
        "TMPDIR": str(tmp_path),
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "nid[001-002]",
    }
    subprocess.run(["bash"], input=text, text=True, env=environment, check=True)
    calls = [call.splitlines() for call in record.read_text("utf-8").split("--end--\n")[:-1]]
    lines = record.with_suffix(".env").read_text("utf-8").splitlines()
    return calls, dict(entry.partition("=")[::2] for entry in lines)


def test_a_job_over_two_nodes_meets_at_the_first_and_knows_its_network(tmp_path: Path) -> None:
    calls, environment = played(tmp_path, slurm(**JOBS[2]))
    (given,) = [call for call in calls if call[0] == "apptainer"]
    assert given[1:3] == ["exec", "--containall"]
    assert f"--workdir={tmp_path}/rocm-torch-77" in given
    assert "--bind=/dev/kfd,/dev/dri" in given
    assert "--bind=/opt/site rccl:/opt/site rccl:ro" in given
    at = given.index("/images/t.sif")
    assert given[at + 1 :] == [
        *("torchrun", "--nnodes=2", "--nproc-per-node=1", "--rdzv-id=77", "--rdzv-backend=c10d"),
        *("--rdzv-endpoint=nid001:29500", *TRAIN[1:]),
    ]
    assert environment["APPTAINERENV_FI_MR_CACHE_MONITOR"] == "userfaultfd"
    assert environment["APPTAINERENV_NCCL_NET_PLUGIN"] == "/opt/site rccl/librccl-net.so"


def test_the_folders_of_a_job_are_private_and_go_with_it(tmp_path: Path) -> None:
    calls, environment = played(tmp_path, slurm())
    made = next(call for call in calls if call[0] == "srun" and call[2] == "mkdir")
    assert made[3:6] == ["-p", "-m", "0700"]
    assert f"{tmp_path}/rocm-torch-77/tmp/rocm-torch/miopen-db" in made
    assert not (tmp_path / "rocm-torch-77").exists()
    assert environment == {}


SECTIONS = st.builds(
    HostSnapshot,
    kernel=st.sampled_from(["6.8.0", "6.6.87.2-microsoft-standard-WSL2"]),
    uid=st.sampled_from([0, 1000]),
    process_groups=st.lists(NUMBERS, max_size=2).map(tuple),
    uid_map=st.sampled_from([(), ("0 0 4294967295",), ("0 1000 1",)]),
    nodes=st.lists(
        st.builds(
            DeviceNode,
            path=st.sampled_from(
                ["/dev/kfd", "/dev/dri/card0", "/dev/dxg"]
                + [f"/dev/dri/renderD{minor}" for minor in range(128, 132)]
            ),
            gid=NUMBERS,
            mode=st.sampled_from([0o660, 0o666]),
            open_errno=st.sampled_from([None, "", "EACCES"]),
        ),
        unique_by=lambda one: one.path,
        max_size=7,
    ).map(tuple),
    gpus=st.lists(st.sampled_from(range(128, 134)), max_size=3).map(
        lambda minors: tuple(Gpu(n, render_minor=minor) for n, minor in enumerate(minors))
    ),
    engines=st.lists(
        st.builds(
            Engine,
            kind=st.sampled_from(["docker", "podman"]),
            rootless=st.booleans(),
            runtime=st.sampled_from([None, "crun", "runc"]),
            user_namespaces=st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    cdi_specs=st.sampled_from([(), ("/etc/cdi/amd.json",)]),
    cdi_stale=st.sampled_from([None, True, False]),
    selinux=st.sampled_from([None, "Enforcing", "Permissive"]),
    container_use_devices=st.sampled_from([None, True, False]),
    files=st.dictionaries(st.just("/opt/rocm/lib/librocdxg.so"), st.booleans()),
)
REQUESTS = st.builds(
    RunRequest,
    image=st.just(IMAGE),
    command=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=3
    ).map(tuple),
    target=st.sampled_from(TARGETS),
    rdma=st.booleans(),
    ipc_host=st.booleans(),
    user=st.sampled_from([None, "1000", "12:34"]),
    cache=st.sampled_from([None, "", "mine", "/data"]),
    nodes=st.integers(1, 2),
    fabric=st.sampled_from([None, "cxi", "verbs"]),
)


@given(SECTIONS, REQUESTS)
def test_nothing_is_ever_privileged_and_seccomp_stays_on(
    snapshot: HostSnapshot, request: RunRequest
) -> None:
    rendered = render_plan(plan_run(snapshot, replace(request, command=())))
    for never in ("privileged", "unconfined", "cap-add", "SYS_ADMIN"):
        assert never not in rendered.text


@given(SECTIONS, REQUESTS)
def test_each_distinct_group_of_the_nodes_is_added_once(
    snapshot: HostSnapshot, request: RunRequest
) -> None:
    plan = plan_run(snapshot, request)
    gids = [group.gid for group in plan.groups]
    assert gids == sorted(set(gids))
    if plan.keep_groups or request.target in ("apptainer", "slurm") or not plan.has_gpu:
        return
    if any(device.path == "/dev/dxg" for device in plan.devices):
        return
    if snapshot.is_wsl or not (snapshot.kfd and snapshot.render_nodes):
        return
    mapped = all(item.split()[:2] == ["0", "0"] for item in snapshot.uid_map)
    owners = {one.gid for one in snapshot.compute_nodes if mapped or one.gid != 65534}
    assert set(gids) == owners


@given(SECTIONS, REQUESTS, st.randoms(use_true_random=False))
def test_the_order_of_nodes_changes_nothing(
    snapshot: HostSnapshot, request: RunRequest, chance: random.Random
) -> None:
    nodes = list(snapshot.nodes)
    chance.shuffle(nodes)
    shuffled = replace(snapshot, nodes=tuple(nodes))
    assert plan_run(shuffled, request) == plan_run(snapshot, request)


@given(SECTIONS, REQUESTS)
def test_a_printed_line_is_its_words_and_each_argument_has_a_reason(
    snapshot: HostSnapshot, request: RunRequest
) -> None:
    rendered = render_plan(plan_run(snapshot, request))
    assert all(one.why for one in rendered.reasons)
    assert rendered.text.endswith("\n")
    if not rendered.argv:
        return
    words = shlex.split(rendered.text)
    assert words == [word for part in (*rendered.before, rendered.argv) for word in part]
    options = rendered.argv[2 : len(rendered.argv) - 1 - len(request.command)]
    explained = {one.argument for one in rendered.reasons}
    assert {word for word in options if word.startswith("-")} <= explained


@given(SECTIONS, REQUESTS)
def test_documents_parse_and_say_what_the_command_is(
    snapshot: HostSnapshot, request: RunRequest
) -> None:
    rendered = render_plan(plan_run(snapshot, request))
    if rendered.target == "devcontainer":
        assert json.loads(rendered.text)["image"] == IMAGE
    elif rendered.target == "compose":
        (service,) = yaml.safe_load(rendered.text)["services"].values()
        words = [word.replace("$$", "$") for word in service.get("command", ())]
        assert words == list(request.command)
    elif rendered.target == "kubernetes":
        (container,) = yaml.safe_load(rendered.text)["spec"]["containers"]
        words = [word.replace("$$(", "$(") for word in container.get("args", ())]
        assert words == list(request.command)


def test_a_sif_is_not_handed_to_a_container_engine(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["run", "x.sif"], ["run", "--print", "docker", "x.sif"]):
        assert run(words) == 64
        assert "--print apptainer x.sif" in capsys.readouterr().err
