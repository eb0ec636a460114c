"""Rules about Windows' Linux: the GPU is /dev/dxg with librocdxg; there is no kfd to ask for.

Sources: AMD, ROCm 10.1.0 release notes; https://github.com/ROCm/librocdxg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.rules.ask import version_of
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_SOURCE = "AMD, ROCm 10.1.0 release notes; https://github.com/ROCm/librocdxg/issues/1"
_DETECTION = "HSA_ENABLE_DXG_DETECTION"
_LIBRARY = "/opt/rocm/lib/librocdxg.so"
_CORE = "/usr/lib/wsl/lib/libdxcore.so"
_AUTOMATIC = (10, 1)  # the release from which ROCr looks for /dev/dxg by itself


def dxg(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """What an image needs there, told on the host before it is run."""
    if not snapshot.is_wsl or snapshot.container or not snapshot.dxg:
        return None
    detection = "" if _DETECTION in snapshot.environment else f" -e {_DETECTION}=1"
    return Finding(
        code="WSL_DXG",
        severity="warning",
        summary="This is WSL: the GPU is /dev/dxg, and a container needs it together with Windows'"
        " libdxcore.so and an image that has librocdxg. There is no compute node of Linux here, and"
        " no Linux driver to install; it is not DirectML either.",
        evidence=(f"kernel: {snapshot.kernel}", "/dev/dxg: there"),
        fix=f"docker run --device=/dev/dxg -v {_CORE}:{_CORE}:ro{detection} IMAGE",
        source=_SOURCE,
    )


def dxg_incomplete(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Inside a container, all parts must be there; exactly the missing ones are named."""
    if not snapshot.is_wsl or not snapshot.container or not snapshot.dxg:
        return None
    missing: list[str] = []
    fixes: list[str] = []
    automatic = facts.image and version_of(facts.image.rocm or "")[:2] >= _AUTOMATIC
    if not snapshot.environment.get(_DETECTION) and not automatic:
        missing.append(f"{_DETECTION}=1 (needed before ROCm 10.1)")
        fixes.append(f"-e {_DETECTION}=1")
    if not snapshot.files.get(_CORE):
        missing.append(f"libdxcore.so of Windows ({_CORE})")
        fixes.append(f"-v {_CORE}:{_CORE}:ro")
    if not snapshot.files.get(_LIBRARY):
        missing.append(f"librocdxg ({_LIBRARY}), which the image must bring")
    if not missing:
        return None
    return Finding(
        code="WSL_DXG_INCOMPLETE",
        severity="error",
        summary="/dev/dxg is here and its user-space side is not complete. Missing: "
        + "; ".join(missing)
        + ".",
        evidence=tuple(missing),
        fix=" ".join(fixes) or "use an image whose ROCm brings librocdxg",
        source=_SOURCE,
    )


def dxg_missing(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Neither node: Windows' driver is too old, or the container was not given the device."""
    if not snapshot.is_wsl or snapshot.dxg or snapshot.kfd:
        return None
    inside = snapshot.container is not None
    return Finding(
        code="WSL_NO_GPU",
        severity="error",
        summary="This is WSL and /dev/dxg is not here: "
        + ("it was not passed in to the container." if inside else "Windows offers no GPU."),
        evidence=(f"kernel: {snapshot.kernel}", "/dev/dxg: not there"),
        fix="docker run --device=/dev/dxg ..."
        if inside
        else "in Windows: update AMD's display driver, then wsl --update and wsl --shutdown",
        source=_SOURCE,
        explains=("ROCMINFO_NO_MODULE",),
    )


def detection_off(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The variable can also switch the GPU off."""
    if not snapshot.is_wsl or snapshot.environment.get(_DETECTION) != "0":
        return None
    return Finding(
        code="WSL_DETECTION_OFF",
        severity="error",
        summary=f"{_DETECTION}=0 switches /dev/dxg off.",
        evidence=(f"{_DETECTION}=0",),
        fix=f"unset {_DETECTION}",
        source=_SOURCE,
    )
