"""The five checks before a move to ROCm, each answered from the findings.

Source: the migration checklist that this project started from, corrected by the facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.host.rules.ask import accesses, targets

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.rules.model import Diagnosis
    from builder.host.snapshot.model import HostSnapshot

PASS, FAIL, OPEN = "pass", "fail", "open"
_DRIVER = (
    "AMDGPU_NOT_LOADED", "SECURE_BOOT_REJECTED", "GPU_INIT_FAILED", "FIRMWARE_MISSING",
    "KFD_NOT_MADE", "TOPOLOGY_EMPTY", "KERNEL_TOO_OLD", "WSL_NO_GPU", "GPU_BOUND_TO_VFIO",
)  # fmt: skip
_TARGET = ("IMAGE_LACKS_TARGET", "NO_KERNEL_FOR_GPU", "HSA_OVERRIDE_WRONG_FAMILY")
_MASK = (
    "VISIBLE_MASK_EMPTY", "VISIBLE_MASK_PCI_ADDRESS", "VISIBLE_MASK_WORD", "HSA_OVERRIDE_EMPTY",
    "HSA_OVERRIDE_MALFORMED", "HSA_OVERRIDE_MIXED",
)  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One point of the list: ``pass``, ``fail``, or ``open`` where it cannot be told from here."""

    name: str
    result: str
    detail: str


def preflight(snapshot: HostSnapshot, facts: HostFacts, diagnosis: Diagnosis) -> tuple[Check, ...]:
    """Return the five points with their results."""
    table = accesses(snapshot)
    found = [gpu.gfx or "?" for gpu in snapshot.gpus]
    closed = [one.line for one in table if one.result != "ok"]
    closed_result = OPEN if not table else PASS if not closed else FAIL
    if closed and not any(one.severity == "error" for one in diagnosis.findings):
        closed_result = OPEN
    known = targets(snapshot, facts)
    return (
        _point(
            "1 GPU and driver", diagnosis, _DRIVER, bool(found) or bool(snapshot.dxg),
            f"{', '.join(found) or 'no GPU found'}; kernel {snapshot.kernel or '?'}, driver"
            f" {snapshot.amdgpu_version or 'of the kernel'}",
        ),
        Check(
            "2 device nodes", closed_result,
            "; ".join(closed) if closed else f"{len(table)} nodes can be opened",
        ),
        _point(
            "3 target served by the image", diagnosis, _TARGET, bool(known and found),
            f"image: {', '.join(known)}" if known else "name an IMAGE to compare with",
        ),
        _point(
            "4 driver against ROCm", diagnosis, ("KERNEL_TOO_OLD",),
            bool(facts.image and facts.image.rocm and snapshot.amdgpu_version)
            and not diagnosis.has("DRIVER_OUTSIDE_WINDOW"),
            _window(facts),
        ),
        _point(
            "5 environment", diagnosis, _MASK, True,
            ", ".join(sorted(snapshot.environment)) or "no variable concerns the GPU",
        ),
    )  # fmt: skip


def _point(
    name: str, diagnosis: Diagnosis, codes: tuple[str, ...], known: bool, detail: str
) -> Check:
    bad = [one for one in diagnosis.findings if one.code in codes and one.severity == "error"]
    if bad:
        return Check(name, FAIL, f"{bad[0].code}: {bad[0].summary}")
    return Check(name, PASS if known else OPEN, detail)


def _window(facts: HostFacts) -> str:
    release = facts.image.rocm if facts.image else None
    window = facts.window(release) if release else None
    if not window:
        return "name an IMAGE to compare with"
    return f"AMD tested ROCm {release} with drivers {window.oldest} to {window.newest}"
