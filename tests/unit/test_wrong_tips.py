"""What the page about wrong tips says is what the doctor says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder.host.rules import HostFacts, ImageFacts, diagnose
from builder.host.shipped import shipped_facts
from builder.host.snapshot import (
    DeviceNode,
    Gpu,
    HostSnapshot,
    Place,
    ToolOutput,
)

if TYPE_CHECKING:
    from builder.host.rules.model import Finding

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/wrong_tips.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| tip ")
]
RULES = "".join(path.read_text("utf-8") for path in (ROOT / "builder/host/rules").glob("*.py"))
TOLD = sorted({code for row in ROWS for code in re.findall(r"`([A-Z]+_[A-Z_]+)`", row[-1])})
XTX = (Gpu(0, "gfx1100"),)
TWO = (Gpu(0, "gfx1100"), Gpu(1, "gfx1100"))
KFD = DeviceNode("/dev/kfd", gid=992)
ROOTLESS = ("0 1000 1",)
NOBODYS = DeviceNode("/dev/kfd", uid=65534, gid=65534)


def variables(gpus: tuple[Gpu, ...] = XTX, **values: str) -> HostSnapshot:
    return HostSnapshot(gpus=gpus, environment=values)


def said(text: str, status: int = 1, **members: object) -> HostSnapshot:
    found = {"rocminfo": ToolOutput("rocminfo", status, stderr=text)}
    return HostSnapshot(tools=found, **members)  # type: ignore[arg-type]


IMAGE = ImageFacts(rocm="7.2.4", gfx=("gfx1100", "gfx942"))
# Each with what the doctor must say of it, and what no report about it may advise.
HOSTS: dict[str, tuple[HostSnapshot, str, str]] = {
    "VISIBLE_MASK_PCI_ADDRESS": (
        variables(HIP_VISIBLE_DEVICES="0000:0a:00.0"), "UUIDs", "HIP_VISIBLE_DEVICES=0000"),
    "VISIBLE_MASK_WORD": (variables(HIP_VISIBLE_DEVICES="all"), "AMD_VISIBLE_DEVICES", "=all"),
    "HIP_CUDA_DIFFER": (
        variables(TWO, HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="1"), "same", "export"),
    "VISIBLE_MASK_EMPTY": (
        variables(TWO, ROCR_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="1"), "none", "export"),
    "HSA_OVERRIDE_NEEDLESS": (
        variables(HSA_OVERRIDE_GFX_VERSION="11.0.0"), "changes nothing", "export"),
    "HSA_OVERRIDE_WRONG_FAMILY": (
        variables((Gpu(0, "gfx1030"),), HSA_OVERRIDE_GFX_VERSION="11.0.0"), "generation", "export"),
    "HSA_OVERRIDE_EMPTY": (variables(HSA_OVERRIDE_GFX_VERSION=""), "unset", "export"),
    "HSA_OVERRIDE_UNSAFE": (
        variables((Gpu(0, "gfx1031"),), HSA_OVERRIDE_GFX_VERSION="10.3.0"), "gfx1031", "export"),
    "KFD_PERMISSION": (
        HostSnapshot(uid=1000, process_groups=(1000, 39, 105, 44), nodes=(KFD,),
            container="docker"), "992", "chmod"),
    "GROUP_BY_NAME": (said("Unable to find group render: no matching entries in group file"),
        "number", "--group-add render"),
    "USERNS_GROUP_DROPPED": (
        HostSnapshot(uid_map=ROOTLESS, nodes=(NOBODYS,), container="podman"),
        "keep-groups", "chmod"),
    "SMI_IS_NO_PROOF": (
        HostSnapshot(uid=1000, nodes=(KFD,), container="docker",
            tools={"rocm-smi": ToolOutput("rocm-smi", 0, "GPU[0]")}), "sysfs", "chmod"),
    "OUT_OF_RESOURCES": (said("HSA_STATUS_ERROR_OUT_OF_RESOURCES"), "not about", "batch"),
    "GLIBCXX_TOO_OLD": (said("version `GLIBCXX_3.4.30' not found"), "do not matter", "apt"),
    "SECURE_BOOT_REJECTED": (
        HostSnapshot(kernel="6.8.0", secure_boot=True, modules=(),
            pci_gpus=("0000:03:00.0 1002:744c -",),
            dmesg=("Loading of module with unavailable key is rejected: amdgpu",
                "amdgpu: Key was rejected by service")), "signed", "/lib/firmware"),
    "NVIDIA_DRIVER_BESIDE": (
        HostSnapshot(kernel="6.8.0", modules=("amdgpu", "nvidia"), gpus=XTX, nodes=(KFD,)),
        "side by side", "remove"),
    "WSL_DXG": (
        HostSnapshot(kernel="6.6.87.2-microsoft-standard-WSL2",
            nodes=(DeviceNode("/dev/dxg", mode=0o666),)), "not DirectML", "modprobe"),
    "GPU_NOT_FOUND": (
        HostSnapshot(kernel="6.8.0", pci_gpus=(), modules=("i915",)), "No AMD GPU", "modprobe"),
    "IMAGE_LACKS_TARGET": (
        HostSnapshot(gpus=(Gpu(0, "gfx1010"),), nodes=(KFD,)), "gfx1010", "10.3.0"),
    "ROCM_SMI_GONE": (
        HostSnapshot(tools={"amd-smi": ToolOutput("amd-smi", 0, "GPU 0"),
            "rocm-smi": ToolOutput("rocm-smi", None)}, container="docker"), "amd-smi", "rocm-smi"),
    "OTHER_PROCESSES": (
        HostSnapshot(gpus=XTX, nodes=(DeviceNode("/dev/kfd", mode=0o666),), kfd_processes=3),
        "share", "kill"),
    "DRIVER_OUTSIDE_WINDOW": (
        HostSnapshot(gpus=XTX, nodes=(KFD,), amdgpu_version="6.2.4", modules=("amdgpu",)),
        "tested", "reinstall"),
    "LD_LIBRARY_PATH_MIXES": (
        HostSnapshot(environment={"LD_LIBRARY_PATH": "/opt/rocm-6.2.4/lib"}, container="docker"),
        "bring their own", "apt"),
    "PIP_EXTRA_INDEX": (
        HostSnapshot(environment={
            "PIP_EXTRA_INDEX_URL": "https://download.pytorch.org/whl/rocm6.4"}),
        "does not matter", "--extra-index-url"),
    "TORCH_NOT_FOR_ROCM": (said("Torch not compiled with CUDA enabled"), "fixed", "export"),
    "SECCOMP_MEMPOLICY": (
        said("set_mempolicy: Operation not permitted"), "SYS_NICE", "unconfined"),
    "SHM_TOO_SMALL": (
        HostSnapshot(container="docker", places={"shm": Place("/dev/shm", total_bytes=64 << 20)}),
        "--shm-size", "df"),
    "APPTAINER_HOST_LIBRARIES": (
        said("libnuma.so.1: version `GLIBC_2.33' not found "
            "(required by /.singularity.d/libs/libnuma.so.1)", container="apptainer"),
        "--bind /dev/kfd,/dev/dri", "--rocm"),
    "GPU_ORDER_DIFFERS": (
        HostSnapshot(
            gpus=(Gpu(0, "gfx1100", pci="0000:03:00.0"), Gpu(1, "gfx1100", pci="0000:83:00.0")),
            tools={"rocm-smi": ToolOutput("rocm-smi", 0,
                "GPU[0] : PCI Bus: 0000:83:00.0\nGPU[1] : PCI Bus: 0000:03:00.0")}),
        "PCI address", "export"),
}  # fmt: skip


def finding(code: str) -> Finding:
    snapshot, _, _ = HOSTS[code]
    facts = shipped_facts()
    known = HostFacts(facts.products, facts.windows, facts.supported, IMAGE)
    found = diagnose(snapshot, known)
    assert found.has(code), [one.code for one in found.findings]
    return next(one for one in found.findings if one.code == code)


def test_each_code_on_the_page_is_one_that_a_rule_gives() -> None:
    assert len(TOLD) > 20
    assert set(TOLD) <= set(re.findall(r'"([A-Z]+_[A-Z_]+)"', RULES))


def test_each_finding_on_the_page_has_a_host_here() -> None:
    assert set(TOLD) == set(HOSTS)


@pytest.mark.parametrize("code", TOLD)
def test_the_doctor_says_the_fact_and_does_not_repeat_the_tip(code: str) -> None:
    _, fact, tip = HOSTS[code]
    found = finding(code)
    assert fact in f"{found.summary} {found.fix}"
    assert tip not in found.fix
    assert found.source


def test_no_report_about_these_hosts_repeats_what_is_never_advised() -> None:
    for snapshot, _, _ in HOSTS.values():
        text = json.dumps([one.to_json() for one in diagnose(snapshot).findings])
        for never in ("--privileged", "chmod", "setenforce", "seccomp=unconfined", "remove nvidia"):
            assert never not in text


def test_each_row_has_a_tip_a_fact_and_a_place_for_the_finding() -> None:
    assert len(ROWS) > 30
    assert all(len(row) in (2, 3) and all(row[:2]) for row in ROWS)
