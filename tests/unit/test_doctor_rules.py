"""What holds of the rules for any host: no traceback, no advice against advice."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.facts import load_facts
from builder.host.known import host_facts, image_facts
from builder.host.rules import (
    RULES,
    Diagnosis,
    Finding,
    HostFacts,
    ImageFacts,
    diagnose,
    facts_from_document,
    facts_to_document,
)
from builder.host.rules.ask import NOBODY
from builder.host.rules.checklist import preflight
from builder.host.rules.masks import compose, effective
from builder.host.rules.text import checklist_lines, lines
from builder.host.snapshot import (
    DeviceNode,
    Engine,
    Gpu,
    HostSnapshot,
    Place,
    ToolOutput,
    from_document,
    to_document,
)

HOSTS = Path(__file__).parents[1] / "cases" / "hosts"
KNOWN = host_facts(load_facts())
KFD = DeviceNode("/dev/kfd", "/dev/kfd", gid=992)
RENDER = DeviceNode("/dev/dri/renderD128", "/dev/dri/renderD128", gid=992)

errnos = st.sampled_from(
    [None, None, "", "", "EACCES", "EPERM", "EINVAL", "ENOMEM", "ENXIO", "ENODEV", "ENOENT", "EIO"]
)
gids = st.sampled_from([0, 44, 105, 109, 992, NOBODY])
targets = st.sampled_from(["gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1036", "gfx1100", None])
masks = st.sampled_from(
    [
        "",
        "0",
        "1",
        "0,1",
        "1,0",
        "-1",
        "7",
        "0,0",
        "all",
        "0000:03:00.0",
        "GPU-0123456789abcdef",
        "GPU-XX",
        "0,GPU-0123456789abcdef",
        " 1 ",
    ]
)
versions = st.sampled_from(["", "10.3.0", "11.0.0", "9.0.10", "9.0.a", "gfx1030", "11", "x.y.z"])
messages = st.sampled_from(
    [
        "",
        "ROCk module is NOT loaded, possibly no GPU devices",
        "Unable to open /dev/kfd read-write: Permission denied",
        "Incompatible kernel and userspace detected. Upgrade amdgpu.",
        "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
        "Unable to find group render: no matching entries in group file",
        "error gathering device information while adding custom device /dev/kfd",
        "unable to write to file </torch_1_1>: No space left on device",
        "GLIBCXX_3.4.29 not found (required by /.singularity.d/libs/libhsa-runtime64.so.1)",
        "HIP error: invalid device function",
        "error while creating mount source path /var/run/docker.sock",
        "Found no NVIDIA driver on your system",
        "0000:03:00.0 0000:04:00.0",
        "ibv_reg_mr failed: Cannot allocate memory",
    ]
)
logs = st.sampled_from(
    [
        "amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init",
        "amdgpu: failed to load firmware",
        "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
        "amdgpu: [gfxhub] page fault (src_id:0)",
        "Loading of module with unavailable key: Key was rejected by service",
        "amdgpu: 3 uncorrectable hardware errors detected",
    ]
)
some = st.one_of(st.none(), st.booleans())


@st.composite
def nodes(draw: st.DrawFn) -> tuple[DeviceNode, ...]:
    paths = draw(
        st.sets(
            st.sampled_from(
                [
                    "/dev/kfd",
                    "/dev/dri/renderD128",
                    "/dev/dri/renderD129",
                    "/dev/dri/card0",
                    "/dev/dxg",
                ]
            )
        )
    )
    modes = st.sampled_from([0o660, 0o666, 0o600, 0o000, 0o640])
    owners = st.sampled_from([0, 0, 1000, NOBODY])
    return tuple(
        DeviceNode(p, p, draw(owners), draw(gids), draw(modes), draw(errnos)) for p in sorted(paths)
    )


@st.composite
def gpus(draw: st.DrawFn) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            index,
            draw(targets),
            node=index + 1,
            render_minor=draw(st.sampled_from([128, 129, 130, None])),
            uuid=draw(st.sampled_from([None, "GPU-XX", "GPU-0123456789abcdef"])),
            pci=draw(st.sampled_from(["0000:03:00.0", "0000:04:00.0", None])),
            vram_mib=draw(st.sampled_from([None, 512, 24560])),
            integrated=draw(some),
            link_width=draw(st.sampled_from([None, 4, 16])),
            link_width_max=draw(st.sampled_from([None, 16])),
            performance_level=draw(st.sampled_from([None, "auto", "low", "manual"])),
        )
        for index in range(draw(st.integers(0, 3)))
    )


environments = st.fixed_dictionaries(
    {},
    optional={
        "ROCR_VISIBLE_DEVICES": masks,
        "HIP_VISIBLE_DEVICES": masks,
        "CUDA_VISIBLE_DEVICES": masks,
        "GPU_DEVICE_ORDINAL": masks,
        "AMD_VISIBLE_DEVICES": masks,
        "HSA_OVERRIDE_GFX_VERSION": versions,
        "HSA_OVERRIDE_GFX_VERSION_0": versions,
        "HSA_OVERRIDE_GFX_VERSION_x": versions,
        "HSA_ENABLE_DXG_DETECTION": st.sampled_from(["", "0", "1"]),
        "LD_LIBRARY_PATH": st.sampled_from(["/opt/rocm-6.1/lib", "/.singularity.d/libs", ""]),
        "LD_PRELOAD": st.sampled_from(["", "/x/libamdhip64.so"]),
        "PYTHONPATH": st.sampled_from(["", "/x"]),
        "PIP_EXTRA_INDEX_URL": st.just("https://download.pytorch.org/whl/rocm6.2"),
        "DOCKER_API_VERSION": st.sampled_from(["1.35", "1.44", "9", "x"]),
        "DOCKER_HOST": st.just("unix:///run/user/1000/docker.sock"),
        "APPTAINER_TMPDIR": st.just("/scratch"),
        "APPTAINER_TEMPDIR": st.sampled_from(["", "/a"]),
        "SINGULARITY_TEMPDIR": st.sampled_from(["", "/b"]),
    },
)
engines = st.builds(
    Engine,
    kind=st.sampled_from(["docker", "podman", "apptainer"]),
    rootless=st.booleans(),
    runtime=st.sampled_from([None, "runc", "crun"]),
    user_namespaces=st.booleans(),
    desktop=st.booleans(),
    api=st.sampled_from([None, "1.52"]),
    min_api=st.sampled_from([None, "1.44"]),
)
places = st.builds(
    Place,
    path=st.just("/p"),
    free_bytes=st.sampled_from([None, 0, 1 << 30, 1 << 40]),
    total_bytes=st.sampled_from([None, 64 << 20, 1 << 40]),
    free_inodes=st.sampled_from([None, 10, 10**6]),
    filesystem=st.sampled_from([None, "tmpfs", "nfs4", "ext4"]),
    writable=some,
)
tools = st.builds(
    ToolOutput,
    name=st.just("x"),
    status=st.sampled_from([None, 0, 1, 124]),
    stdout=messages,
    stderr=messages,
)
snapshots = st.builds(
    HostSnapshot,
    kernel=st.sampled_from(["", "6.8.0-50-generic", "6.6.87.2-microsoft-standard-WSL2"]),
    machine=st.sampled_from(["x86_64", "aarch64"]),
    os_id=st.sampled_from([None, "ubuntu", "rhel"]),
    uid=st.sampled_from([0, 998, 1000]),
    process_groups=st.lists(gids, max_size=3).map(tuple),
    db_groups=st.one_of(st.none(), st.lists(gids, max_size=3).map(tuple)),
    groups=st.dictionaries(st.sampled_from(["render", "video"]), gids),
    uid_map=st.sampled_from([(), ("0 0 4294967295",), ("0 1000 1",), ("0 100000 65536",)]),
    container=st.sampled_from(
        [None, None, "docker", "podman", "lxc", "lxc-unprivileged", "kubernetes", "apptainer"]
    ),
    engines=st.lists(engines, max_size=2).map(tuple),
    nodes=nodes(),
    gpus=gpus(),
    pci_gpus=st.sampled_from(
        [
            None,
            (),
            ("0000:03:00.0 1002:744c -",),
            ("0000:03:00.0 1002:744c vfio-pci",),
            ("0000:03:00.0 1002:6798 radeon",),
        ]
    ),
    kfd_gpu_nodes=st.sampled_from([None, 0, 1, 2]),
    kfd_processes=st.sampled_from([None, 0, 3]),
    modules=st.sampled_from([None, (), ("amdgpu",), ("nvidia",), ("amdgpu", "nvidia")]),
    amdgpu_version=st.sampled_from([None, "5.13", "6.12.12", "x"]),
    secure_boot=some,
    iommu=st.sampled_from([None, "iommu=pt", "amd_iommu=on"]),
    numa_balancing=st.sampled_from([None, 0, 1]),
    selinux=st.sampled_from([None, "Enforcing", "Permissive"]),
    container_use_devices=some,
    apparmor=some,
    cdi_specs=st.sampled_from([(), ("/etc/cdi/amd.json",)]),
    cdi_stale=some,
    environment=environments,
    places=st.dictionaries(
        st.sampled_from(["root", "shm", "tmp", "miopen-db", "miopen-kernels"]), places
    ),
    tools=st.dictionaries(
        st.sampled_from(["amd-smi", "rocm-smi", "rocminfo", "error"]), tools, max_size=3
    ),
    dmesg=st.lists(logs, max_size=3).map(tuple),
    torch_targets=st.sampled_from([None, ("gfx1100",), ("gfx1030", "gfx1100"), ("gfx11-generic",)]),
)
images = st.one_of(
    st.none(),
    st.builds(
        ImageFacts,
        rocm=st.sampled_from([None, "7.2.1", "6.2.4", "10.1.0", "99.1"]),
        gfx=st.sampled_from([(), ("gfx1100",), ("gfx90a", "gfx942")]),
        user=st.sampled_from([None, "", "root", "0", "1000:1000", "rocm"]),
        unpacked_bytes=st.sampled_from([None, 45 << 30]),
    ),
)

_SET = re.compile(r"(?:export|-e|--env) +([A-Z][A-Z0-9_]*)=(\S*)|(?<=\s)([A-Z][A-Z0-9_]+)=(/\S+)")
_UNSET = re.compile(r"unset ((?:[A-Z][A-Z0-9_]* ?)+)")
_GROUP = re.compile(r"--group-add +(\d+)")


def contradictions(found: Diagnosis) -> list[str]:
    """Name advice that goes against other advice of the same report.

    One variable set to two values, or set and unset; group numbers or membership where a user
    namespace drops groups; a mode for everybody; a policy or a security option switched off.
    """
    fixes = [one.fix for one in found.findings]
    values: dict[str, set[str]] = {}
    for fix in fixes:
        for name, value, other, path in _SET.findall(fix):
            values.setdefault(name or other, set()).add(value or path)
    unset = {name for fix in fixes for words in _UNSET.findall(fix) for name in words.split()}
    bad = [f"{name} set to {sorted(told)}" for name, told in values.items() if len(told) > 1]
    bad += [f"{name} set and unset" for name in values.keys() & unset]
    codes = {one.code for one in found.findings}
    dropped = codes & {"USERNS_GROUP_DROPPED", "LXC_GROUP_NOT_MAPPED"}
    text = "\n".join(fixes)
    if dropped and (_GROUP.search(text) or "usermod" in text):
        bad.append(f"groups added although {dropped}")
    bad += [w for w in ("chmod", "--privileged", "setenforce", "unconfined") if w in text]
    if "GROUP_NOT_ACTIVE" in codes and "usermod" in text:
        bad.append("usermod for a group that the user has")
    if any(one.code.startswith("KFD_OPEN_E") for one in found.findings) and "usermod" in text:
        kinds = {one.code for one in found.findings if "usermod" in one.fix}
        if "KFD_PERMISSION" in kinds:
            bad.append("usermod for a node that the driver refuses")
    return bad


@given(snapshot=snapshots, image=images)
@settings(max_examples=max(300, settings.default.max_examples if settings.default else 0))
def test_no_host_gives_a_traceback_or_advice_against_advice(
    snapshot: HostSnapshot, image: ImageFacts | None
) -> None:
    facts = replace(KNOWN, image=image)
    found = diagnose(snapshot, facts)
    assert contradictions(found) == []
    assert "\n".join(lines(found))
    assert len(list(checklist_lines(preflight(snapshot, facts, found)))) == 5
    json.dumps([one.to_json() for one in found.findings])
    assert (found.verdict == "fail") == any(one.severity == "error" for one in found.findings)


@given(snapshot=snapshots)
def test_what_follows_stands_behind_its_cause_and_nothing_follows_from_nothing(
    snapshot: HostSnapshot,
) -> None:
    found = diagnose(snapshot).findings
    if found:
        assert found[0].follows_from == ""
    for place, one in enumerate(found):
        if one.follows_from:
            assert one.follows_from in {other.code for other in found[:place]}


@given(snapshot=snapshots)
def test_a_state_that_was_saved_and_read_again_is_the_same(snapshot: HostSnapshot) -> None:
    again = from_document(json.loads(json.dumps(to_document(snapshot))))
    assert diagnose(again).verdict == diagnose(snapshot).verdict


@pytest.mark.parametrize("path", sorted(HOSTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_healthy_host_has_no_error_and_no_warning(path: Path) -> None:
    found = diagnose(from_document(json.loads(path.read_text("utf-8"))), KNOWN)
    assert found.verdict == "pass"
    assert [one.code for one in found.findings if one.severity != "info"] == []


def test_there_are_three_healthy_hosts() -> None:
    assert len(list(HOSTS.glob("*.json"))) == 3


def test_there_are_enough_rules_and_none_stands_twice() -> None:
    assert len(RULES) >= 45
    assert len(set(RULES)) == len(RULES)


def test_the_facts_survive_the_way_into_an_image() -> None:
    assert facts_from_document(json.loads(json.dumps(facts_to_document(KNOWN)))) == KNOWN


def one(snapshot: HostSnapshot, code: str, facts: HostFacts = KNOWN) -> Finding:
    return next(found for found in diagnose(snapshot, facts).findings if found.code == code)


def test_the_second_mask_counts_over_what_the_first_left() -> None:
    seen = HostSnapshot(
        kfd_gpu_nodes=4,
        environment={"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"},
    )
    assert [layer.left for layer in compose(seen)] == [(2, 3), (3,)]
    assert effective(seen) == (3,)
    assert one(seen, "VISIBLE_MASKS_BOTH").fix == "unset HIP_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("value", "left"), [("1,9,0", (1,)), ("0,0", (0,)), ("-1", ()), ("GPU-0123456789abcdef", (1,))]
)
def test_a_list_ends_at_what_is_not_known(value: str, left: tuple[int, ...]) -> None:
    seen = HostSnapshot(
        gpus=(Gpu(0, "gfx1100"), Gpu(1, "gfx1100", uuid="GPU-0123456789abcdef")),
        environment={"ROCR_VISIBLE_DEVICES": value},
    )
    assert effective(seen) == left


@pytest.mark.parametrize(
    ("errno", "code"),
    [
        ("EACCES", "POLICY_DENIED"),
        ("EPERM", "KFD_OPEN_EPERM"),
        ("EINVAL", "KFD_OPEN_EINVAL"),
        ("ENOMEM", "KFD_OPEN_ENOMEM"),
        ("ENXIO", "KFD_OPEN_ENXIO"),
        ("ENOENT", "KFD_OPEN_ENOENT"),
        ("EIO", "KFD_OPEN_FAILED"),
    ],
)
def test_each_errno_has_a_story_of_its_own(errno: str, code: str) -> None:
    seen = HostSnapshot(container="docker", nodes=(replace(KFD, open_errno=errno),))
    cause = diagnose(seen).cause
    assert cause is not None
    assert cause.code == code
    assert "usermod" not in cause.fix


@pytest.mark.parametrize(
    ("gpu", "value", "known", "code"),
    [
        ("gfx1100", "11.0.0", (), "HSA_OVERRIDE_NEEDLESS"),
        ("gfx1031", "10.3.0", ("gfx1030",), "HSA_OVERRIDE_UNSAFE"),
        ("gfx1010", "10.3.0", ("gfx1030",), "HSA_OVERRIDE_UNSAFE"),
        ("gfx1030", "11.0.0", (), "HSA_OVERRIDE_WRONG_FAMILY"),
        ("gfx90a", "10.3.0", (), "HSA_OVERRIDE_WRONG_FAMILY"),
        ("gfx1030", "gfx1030", (), "HSA_OVERRIDE_MALFORMED"),
    ],
)
def test_an_override_is_judged_against_the_gpu(
    gpu: str, value: str, known: tuple[str, ...], code: str
) -> None:
    seen = HostSnapshot(
        gpus=(Gpu(0, gpu),),
        torch_targets=known,
        environment={"HSA_OVERRIDE_GFX_VERSION": value},
    )
    assert one(seen, code).fix in {"", "unset HSA_OVERRIDE_GFX_VERSION"}


def test_one_override_for_two_kinds_of_gpu_is_an_error_and_its_form_for_one_is_not() -> None:
    both = (Gpu(0, "gfx1030"), Gpu(1, "gfx1031"))
    mixed = HostSnapshot(gpus=both, environment={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})
    assert one(mixed, "HSA_OVERRIDE_MIXED").severity == "error"
    single = replace(mixed, environment={"HSA_OVERRIDE_GFX_VERSION_1": "10.3.0"})
    assert diagnose(single).verdict == "pass"


def test_the_label_of_an_image_is_compared_before_it_is_run() -> None:
    looked = image_facts("x", {"io.rocm-torch.gfx": "gfx90a,gfx942"}, "1000", None)
    seen = HostSnapshot(gpus=(Gpu(0, "gfx1100"),))
    found = one(seen, "IMAGE_LACKS_TARGET", replace(KNOWN, image=looked))
    assert found.severity == "error"
    assert "RX 7900" in found.summary


def test_a_driver_older_than_the_window_warns_and_never_fails() -> None:
    seen = HostSnapshot(nodes=(replace(KFD, open_errno=""),), amdgpu_version="6.3.6")
    facts = replace(KNOWN, image=ImageFacts(rocm="7.2.1"))
    assert one(seen, "DRIVER_OUTSIDE_WINDOW", facts).severity == "warning"
    assert diagnose(seen, facts).verdict == "pass"
    newer = replace(seen, amdgpu_version="6.16.6")
    assert not diagnose(newer, facts).has("DRIVER_OUTSIDE_WINDOW")


def test_secure_boot_is_named_only_where_the_module_was_rejected_or_a_card_has_no_driver() -> None:
    seen = HostSnapshot(
        "6.8.0",
        os_id="ubuntu",
        secure_boot=True,
        modules=(),
        pci_gpus=("0000:03:00.0 1002:744c -",),
        dmesg=("modprobe: Key was rejected by service",),
    )
    found = diagnose(seen)
    assert found.cause is not None
    assert found.cause.code == "SECURE_BOOT_REJECTED"
    assert "/var/lib/shim-signed/mok/MOK.der" in found.cause.fix
    assert next(f for f in found.findings if f.code == "AMDGPU_NOT_LOADED").follows_from
    loaded = replace(seen, modules=("amdgpu",), nodes=(replace(KFD, open_errno=""),))
    assert diagnose(loaded).verdict == "pass"


def test_an_image_with_a_user_of_its_own_needs_the_group_though_the_engine_is_rootful() -> None:
    seen = HostSnapshot(uid=998, process_groups=(998,), nodes=(KFD,), engines=(Engine("docker"),))
    found = one(seen, "CALLER_CANNOT_OPEN", replace(KNOWN, image=ImageFacts(user="1000")))
    assert found.fix == "--group-add 992"


def test_a_host_without_a_gpu_is_incomplete() -> None:
    seen = HostSnapshot("6.1.0", modules=(), pci_gpus=())
    assert diagnose(seen).verdict == "incomplete"
