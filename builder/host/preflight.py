"""The five questions before a GPU container is started on a host, answered from the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.host.rules import RULES, Finding
from builder.host.rules.model import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.host.rules import HostFacts
    from builder.host.rules.model import Rule
    from builder.host.snapshot import HostSnapshot

# What each point asks, and the modules of rules that answer it.
POINTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the GPU is there, and the image has kernels for it", ("presence", "overrides")),
    ("the kernel's driver is loaded, healthy and of the tested range", ("kernel", "opening")),
    ("the device nodes can be opened", ("nodes", "namespaces")),
    ("the container engine passes devices in", ("containers", "apptainer", "wsl")),
    ("the environment hides and replaces nothing", ("masks", "python", "tools", "speed")),
)
_RESULTS = {"error": "fail", "warning": "warn", "info": "ok"}


@dataclass(frozen=True)
class Point:
    """One point of the checklist.

    Attributes:
        asks: what it is about.
        result: ``ok``, ``warn``, ``fail``, or ``unknown`` where there is no GPU to ask.
        codes: what was found, worst first.
    """

    asks: str
    result: str
    codes: tuple[str, ...] = ()


def preflight(snapshot: HostSnapshot, facts: HostFacts) -> tuple[Point, ...]:
    """Return the five points with their results."""
    return tuple(_point(asks, rooms, snapshot, facts) for asks, rooms in POINTS)


def _point(asks: str, rooms: tuple[str, ...], snapshot: HostSnapshot, facts: HostFacts) -> Point:
    found = [
        finding
        for rule in RULES
        if room_of(rule) in rooms
        for finding in _findings(rule, snapshot, facts)
    ]
    found.sort(key=lambda one: SEVERITIES.index(one.severity))
    codes = tuple(dict.fromkeys(one.code for one in found))
    if "GPU_NOT_FOUND" in codes:
        return Point(asks, "unknown", codes)
    return Point(asks, _RESULTS[found[0].severity] if found else "ok", codes)


def room_of(rule: Rule) -> str:
    """Return the name of the module that a rule is in."""
    return rule.__module__.rpartition(".")[2]


def _findings(rule: Rule, snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    said = rule(snapshot, facts)
    if isinstance(said, Finding):
        yield said
    elif said is not None:
        yield from said
