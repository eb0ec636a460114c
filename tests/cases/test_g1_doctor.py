"""Field cases about hosts and environments: the doctor's codes and words, by the reports' ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from builder.facts import load_facts
from builder.host.known import host_facts
from builder.host.rules import Diagnosis, HostFacts, ImageFacts, diagnose
from builder.host.rules.ask import accesses
from builder.host.rules.masks import effective
from builder.host.rules.tools import hip_index_of
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

KFD, RENDER, CARD, DXG = "/dev/kfd", "/dev/dri/renderD128", "/dev/dri/card0", "/dev/dxg"
WSL = "6.6.87.2-microsoft-standard-WSL2"
KNOWN = host_facts(load_facts())
GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    """A host as a report tells it, and what the doctor must and must not say of it."""

    id: str
    host: HostSnapshot
    verdict: str
    code: str | None
    says: tuple[str, ...]
    must_not_say: tuple[str, ...] = ()
    image: ImageFacts | None = None


def node(path: str, gid: int = 0, mode: int = 0o660, **more: Any) -> DeviceNode:
    return DeviceNode(path, path, gid=gid, mode=mode, **more)


def host(*nodes: DeviceNode, **more: Any) -> HostSnapshot:
    return HostSnapshot(nodes=nodes, **more)


def gpus(*targets: str) -> tuple[Gpu, ...]:
    return tuple(Gpu(index, gfx) for index, gfx in enumerate(targets))


def said(text: str, status: int | None = 1, name: str = "rocminfo") -> dict[str, ToolOutput]:
    return {name: ToolOutput(name, status, stderr=text)}


CASES = (
    Case(
        "g1-01-copied-gids",
        host(
            node(KFD, 992),
            node(RENDER, 992),
            uid=1000,
            process_groups=(1000, 39, 105),
            groups={"render": 992, "video": 44},
        ),
        "fail",
        "KFD_PERMISSION",
        ("992", "--group-add 992", "present but not openable"),
        ("no GPU found", "--group-add 105"),
    ),
    Case(
        "g1-02-video-only",
        host(
            node(KFD, 109), node(RENDER, 109), node(CARD, 44), uid=1000, process_groups=(1000, 44)
        ),
        "fail",
        "KFD_PERMISSION",
        ("109",),
    ),
    Case(
        "g1-03-rootless-podman",
        host(
            DeviceNode(KFD, KFD, 65534, 65534),
            engines=(Engine("podman", rootless=True, runtime="crun"),),
            uid_map=("0 1000 1",),
            process_groups=(0,),
        ),
        "fail",
        "USERNS_GROUP_DROPPED",
        ("keep-groups", "crun"),
        ("usermod -aG", "chmod 666"),
    ),
    Case(
        "g1-04-kfd-einval",
        host(
            node(KFD, 993, 0o666, open_errno="EINVAL"),
            node(RENDER, 44),
            container="lxc-unprivileged",
            process_groups=(0, 44, 993),
            modules=("amdgpu",),
            kfd_gpu_nodes=0,
        ),
        "fail",
        "KFD_OPEN_EINVAL",
        ("Invalid argument", "dmesg"),
        ("chmod", "usermod", "add your user to"),
    ),
    Case(
        "g1-05-lxc-kfd-gid",
        host(
            node(KFD, 44),
            node(RENDER, 992),
            container="lxc",
            uid=1000,
            process_groups=(1000, 992),
        ),
        "fail",
        "KFD_PERMISSION",
        (KFD, "44"),
    ),
    Case(
        "g1-06-selinux",
        host(
            node(KFD, 105, 0o666, open_errno="EACCES"),
            node(RENDER, 105, 0o666, open_errno="EACCES"),
            os_id="rhel",
            os_version="9",
            selinux="Enforcing",
            engines=(Engine("podman"),),
            process_groups=(0, 39, 105),
        ),
        "fail",
        "SELINUX_DENIED",
        ("container_use_devices",),
        ("setenforce 0", "chmod"),
    ),
    Case(
        "g1-07-both-masks",
        host(
            kfd_gpu_nodes=2, environment={"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}
        ),
        "fail",
        "VISIBLE_MASK_EMPTY",
        ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    ),
    Case(
        "g1-09-override-empty",
        host(gpus=gpus("gfx1100"), environment={"HSA_OVERRIDE_GFX_VERSION": ""}),
        "fail",
        "HSA_OVERRIDE_EMPTY",
        ("unset HSA_OVERRIDE_GFX_VERSION",),
    ),
    Case(
        "g1-10-override-blanket",
        host(
            gpus=gpus("gfx1030"),
            environment={"HSA_OVERRIDE_GFX_VERSION": "11.0.0"},
            torch_targets=("gfx1030", "gfx1100"),
        ),
        "fail",
        "HSA_OVERRIDE_WRONG_FAMILY",
        ("gfx1030 is supported natively", "unset"),
    ),
    Case(
        "g1-11-igpu-first",
        host(
            gpus=(
                Gpu(0, "gfx1036", vram_mib=512, uuid="GPU-XX"),
                Gpu(1, "gfx1201", vram_mib=16304, uuid="GPU-0123456789abcdef"),
            ),
            torch_targets=("gfx1100", "gfx1201"),
        ),
        "pass",
        "IGPU_SHADOWS_DGPU",
        ("gfx1036", "GPU-0123456789abcdef"),
        ("HSA_OVERRIDE_GFX_VERSION=11",),
    ),
    Case(
        "g1-12-wsl-no-kfd",
        host(node(DXG, 0, 0o666), kernel=WSL, modules=()),
        "pass",
        "WSL_DXG",
        (DXG,),
        ("modprobe amdgpu", "amdgpu-dkms", "--device=/dev/kfd"),
    ),
    Case(
        "g1-13-wsl-dxg-incomplete",
        host(
            node(DXG, 0, 0o666),
            kernel=WSL,
            container="docker",
            files={"/opt/rocm/lib/libhsa-runtime64.so.1": True},
        ),
        "fail",
        "WSL_DXG_INCOMPLETE",
        ("HSA_ENABLE_DXG_DETECTION", "libdxcore", "librocdxg"),
    ),
    Case(
        "g1-14-second-user",
        host(node(KFD, 992), uid=1002, process_groups=(1002,), db_groups=(1002, 44, 992)),
        "fail",
        "GROUP_NOT_ACTIVE",
        ("log out", "newgrp"),
        ("usermod -aG",),
    ),
    Case(
        "g1-15-nonroot-user",
        host(
            uid=1000,
            tools={
                "rocm-smi": ToolOutput("rocm-smi", 0, "1 GPU"),
                **said("Unable to open /dev/kfd read-write: Permission denied"),
            },
        ),
        "fail",
        "KFD_PERMISSION",
        (KFD,),
        ("GPU ok",),
    ),
    Case(
        "g1-18-partial-render-nodes",
        host(
            node(KFD, 109, 0o666),
            node(RENDER, 109, 0o666),
            gpus=(
                Gpu(0, "gfx90a", node=1, render_minor=128),
                Gpu(1, "gfx90a", node=2, render_minor=129),
            ),
        ),
        "pass",
        "RENDER_NODE_MISSING",
        ("renderD129",),
    ),
    Case(
        "g1-21-driver-userspace-mismatch",
        host(
            amdgpu_version="5.13",
            kfd_ioctl="1.6",
            tools=said("Incompatible kernel and userspace detected. Upgrade amdgpu."),
        ),
        "fail",
        "KERNEL_TOO_OLD",
        ("7.2.1", "5.13"),
        ("rebuild the image",),
        ImageFacts(rocm="7.2.1"),
    ),
    Case(
        "g1-22-kfd-enomem",
        host(
            node(KFD, 44, open_errno="ENOMEM"),
            uid=1000,
            process_groups=(1000, 44),
            tools={"rocminfo": ToolOutput("rocminfo", 8)},
        ),
        "fail",
        "KFD_OPEN_ENOMEM",
        ("ENOMEM", "dmesg"),
        ("reduce batch size",),
    ),
    Case(
        "g1-23-apptainer-containall",
        host(
            container="apptainer",
            environment={"APPTAINER_CONTAINER": "/x/img.sif"},
            tools={
                "rocminfo": ToolOutput(
                    "rocminfo", 0, "ROCk module is NOT loaded, possibly no GPU devices"
                )
            },
        ),
        "fail",
        "KFD_MISSING",
        ("--rocm", "--bind /dev/kfd"),
        ("docker run", "modprobe"),
    ),
    Case(
        "g1-24-wrong-identity",
        host(
            node(KFD, 0),
            node(RENDER, 993),
            uid=998,
            process_groups=(998,),
            engines=(Engine("podman"),),
        ),
        "pass",
        None,
        ("caller cannot open", "container root can"),
        ("add --device=/dev/kfd",),
        ImageFacts(user="0"),
    ),
    Case(
        "g5-10-api-version-pinned",
        host(
            environment={"DOCKER_API_VERSION": "1.35"},
            engines=(Engine("docker", api="1.52", min_api="1.44"),),
        ),
        "fail",
        "API_VERSION_PINNED",
        ("DOCKER_API_VERSION", "1.44"),
    ),
    Case(
        "g5-11-ryuk",
        host(
            environment={"DOCKER_HOST": "unix:///run/user/1000/docker.sock"},
            tools=said("error while creating mount source path /var/run/docker.sock", name="error"),
        ),
        "pass",
        "REAPER_SOCKET",
        ("TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE",),
    ),
    Case(
        "g6-03-tmpdir",
        host(
            environment={
                "APPTAINER_CACHEDIR": "/scratch/u/cache",
                "SINGULARITY_TEMPDIR": "/scratch/u/tmp",
            },
            places={"tmp": Place("/tmp", free_bytes=8 * GIB, filesystem="tmpfs")},
        ),
        "fail",
        "SIF_TMP_TOO_SMALL",
        ("APPTAINER_TMPDIR", "SINGULARITY_TEMPDIR is not a known name"),
        (),
        ImageFacts(unpacked_bytes=45 * GIB),
    ),
    Case(
        "g7-12-shm",
        HostSnapshot(
            container="docker",
            places={"shm": Place("/dev/shm", total_bytes=64 << 20)},
            tools=said(
                "unable to write to file </torch_1_1>: No space left on device", name="error"
            ),
        ),
        "fail",
        "SHM_TOO_SMALL",
        ("--shm-size",),
        ("disk full",),
    ),
)


def report(found: Diagnosis) -> str:
    return "\n".join(
        "\n".join((one.code, one.summary, one.fix, *one.evidence)) for one in found.findings
    )


def known(case: Case) -> HostFacts:
    return replace(KNOWN, image=case.image)


by_id = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@by_id
def test_the_verdict_and_the_first_finding_are_the_reports(case: Case) -> None:
    found = diagnose(case.host, known(case))
    assert found.verdict == case.verdict
    assert found.cause is not None
    if case.code:
        assert found.cause.code == case.code


@by_id
def test_all_that_must_be_said_is_said_and_nothing_that_must_not_be(case: Case) -> None:
    text = report(diagnose(case.host, known(case)))
    assert [words for words in case.says if words not in text] == []
    assert [words for words in case.must_not_say if words in text] == []


@by_id
def test_a_saved_state_gives_the_same_diagnosis(case: Case) -> None:
    again = from_document(to_document(case.host))
    assert diagnose(again, known(case)).verdict == case.verdict


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.id == name)


@pytest.mark.parametrize("case_id", ["g1-05-lxc-kfd-gid"])
def test_each_node_is_judged_on_its_own(case_id: str) -> None:
    table = {one.node.path: one.result for one in accesses(case_of(case_id).host)}
    assert table == {KFD: "denied", RENDER: "ok"}
    evidence = report(diagnose(case_of(case_id).host))
    assert f"{KFD} owner 0:44 mode 0660: denied" in evidence
    assert f"{RENDER} owner 0:992 mode 0660: ok" in evidence


@pytest.mark.parametrize("case_id", ["g1-07-both-masks"])
def test_masks_that_leave_nothing_have_no_effective_device(case_id: str) -> None:
    assert effective(case_of(case_id).host) == ()


@pytest.mark.parametrize("case_id", ["g1-11-igpu-first"])
def test_a_uuid_that_is_none_falls_back_to_the_index(case_id: str) -> None:
    small, large = case_of(case_id).host.gpus
    swapped = replace(
        case_of(case_id).host,
        gpus=(replace(small, uuid=None), replace(large, uuid="GPU-XX")),
    )
    cause = diagnose(swapped).cause
    assert cause is not None
    assert cause.fix == "export ROCR_VISIBLE_DEVICES=1"


@pytest.mark.parametrize("case_id", ["g1-19-index-orders"])
def test_the_index_of_one_tool_is_carried_over_by_the_pci_address(case_id: str) -> None:
    hip, smi = ("0000:83:00.0", "0000:e3:00.0"), ("0000:e3:00.0", "0000:83:00.0")
    assert hip_index_of(0, hip, smi) == 1
    seen = HostSnapshot(
        gpus=tuple(Gpu(n, "gfx90a", pci=address) for n, address in enumerate(hip)),
        tools={"amd-smi": ToolOutput("amd-smi", 0, "\n".join(f"BDF: {one}" for one in smi))},
    )
    found = diagnose(seen)
    assert found.has("GPU_ORDER_DIFFERS")
    assert "HIP 1, smi 0: 0000:e3:00.0" in report(found)
