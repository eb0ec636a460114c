"""Check ``opencl``: clinfo runs, what it prints is understood, and a GPU that is there is in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.context import NO_CELL, Context, Ran, run_program
from rocm_torch_selftest.outcome import failed, not_applicable, passed

if TYPE_CHECKING:
    from typing import Sequence

    from rocm_torch_selftest.outcome import Outcome

VENDORS = Path("/etc/OpenCL/vendors")

# Two programs have this name, the distributions' and AMD's; both print these lines, AMD's with a
# colon after the words.
_LINE = re.compile(r"\s*(Number of platforms|Number of devices|Platform Name):?\s+(.*\S)")
# What both say where no platform is registered or none of them works without a GPU.
_NO_PLATFORM = ("clgetplatformids(-1001)", "cl_platform_not_found_khr")


def run(context: Context) -> Outcome:
    """Ask clinfo for platforms and devices."""
    if context.cell is None:
        return not_applicable(NO_CELL)
    if "clinfo" not in context.cell.contents:
        return not_applicable("The cell does not promise clinfo.")
    context.stage("clinfo")
    said = run_program(["clinfo"], limit_s=50)
    return judge(said, drivers=registered(VENDORS), gpu=Path("/dev/kfd").exists())


def registered(folder: Path) -> tuple[str, ...]:
    """Return the libraries that are registered as OpenCL drivers."""
    return tuple(sorted(file.read_text("utf-8").strip() for file in folder.glob("*.icd")))


def parse(text: str) -> list[dict[str, Any]] | None:
    """Return name and number of devices of each platform; None where the text tells of none.

    clinfo prints a platform's name twice: first with the platform, then with its devices.
    """
    platforms: dict[str, int] = {}
    number, current = None, ""
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        what, value = match.groups()
        if what == "Platform Name":
            current = value
            platforms.setdefault(current, 0)
        elif not value.isdigit():
            continue
        elif what == "Number of platforms":
            number = int(value)
        elif current:
            platforms[current] = int(value)
    if number is None or number < len(platforms):
        return None
    return [{"name": name, "devices": count} for name, count in platforms.items()]


def judge(said: Ran, *, drivers: Sequence[str], gpu: bool) -> Outcome:
    """Judge what clinfo printed; without a GPU a driver need not show a platform or device."""
    words = (said.stdout + said.stderr).lower().replace(" ", "")
    platforms = parse(said.stdout)
    if platforms is None and any(word in words for word in _NO_PLATFORM):
        platforms = []
    if platforms is None:
        return failed(f"clinfo prints nothing about platforms: {said.last_line}")
    if not platforms and not drivers:
        return failed(f"No OpenCL driver is registered in {VENDORS}, so clinfo sees nothing.")
    devices = sum(platform["devices"] for platform in platforms)
    if gpu and not devices:
        return failed("/dev/kfd is there, and no OpenCL platform has a device.", found=platforms)
    names = ", ".join(f"{one['name']} with {one['devices']} devices" for one in platforms)
    return passed(
        f"clinfo sees {names or 'no platform, and there is no GPU'}.",
        found=platforms,
        drivers=list(drivers),
    )
