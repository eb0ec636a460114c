"""What the kernel's KFD topology says about the GPUs, without any ROCm library."""

from __future__ import annotations

from pathlib import Path

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


def gpu_targets(topology: Path = TOPOLOGY) -> dict[int, str]:
    """Return the gfx target of each GPU node by node number; empty without the amdgpu driver.

    ``gfx_target_version`` is major * 10000 + minor * 100 + stepping (Linux,
    drivers/gpu/drm/amd/amdkfd); it is 0 for a CPU. A node of a GPU that this container was not
    given reads as empty, and is left out.
    """
    found: dict[int, str] = {}
    try:
        nodes = sorted(path for path in topology.iterdir() if path.name.isdigit())
    except OSError:
        return found
    for node in nodes:
        version = _property(node / "properties", "gfx_target_version")
        if version:
            found[int(node.name)] = target_name(version)
    return found


def target_name(version: int) -> str:
    """Return the name of a ``gfx_target_version``: 90402 is gfx942, 110003 is gfx1103.

    Minor and stepping are one hexadecimal digit each: 90010 is gfx90a.
    """
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def override_target(value: str) -> str | None:
    """Return the target that ``HSA_OVERRIDE_GFX_VERSION`` claims: 10.3.0 is gfx1030."""
    words = value.strip().split(".")
    if len(words) != 3 or not all(word.isdigit() for word in words):
        return None
    major, minor, stepping = (int(word) for word in words)
    return target_name(major * 10000 + minor * 100 + stepping)


def _property(file: Path, name: str) -> int:
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    for line in lines:
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return 0
