"""The document and the table as lines for people; nothing depends on colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

from rocm_torch_selftest.outcome import SKIP
from rocm_torch_selftest.table import BENCH, required_ids
from rocm_torch_selftest.verdict import INCOMPLETE

if TYPE_CHECKING:
    from rocm_torch_selftest.table import Check

_STATUS_WORDS = {"not_applicable": "n/a"}


def report_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the report: where it ran, one line a check, the verdict last."""
    environment = document["environment"]
    lines = [
        f"level {document['level']}, cell {document['cell'] or '(not one of our images)'}",
        f"torch {environment['torch'] or '(does not import)'}, backend {environment['backend']}, "
        f"Python {environment['python']}, glibc {environment['glibc']}, "
        f"kernel {environment['kernel']}, driver {environment['driver']}",
    ]
    lines += [
        f"GPU {number}: {device['name']}, {device['gfx']}, {device['memory_bytes'] / 2**30:.1f} GiB"
        for number, device in enumerate(environment["devices"])
    ]
    width = max((len(check["id"]) for check in document["checks"]), default=0)
    lines += [
        f"{_STATUS_WORDS.get(check['status'], check['status']):<5} {check['id']:<{width}} "
        f"{check['seconds']:6.2f} s  {check['detail']}"
        for check in document["checks"]
    ]
    lines += [
        f"{entry['count']} harmless lines of {name}: {entry['reason']}"
        for name, entry in document["harmless_lines"].items()
    ]
    return [*lines, _verdict_line(document)]


def _verdict_line(document: Mapping[str, Any]) -> str:
    summary = document["summary"]
    counts = ", ".join(f"{summary[name]} {name}" for name in ("passed", "failed", "skipped"))
    line = f"verdict: {summary['verdict']} ({counts})"
    if summary["verdict"] == INCOMPLETE:
        tried = {check["id"] for check in document["checks"] if check["status"] != SKIP}
        required = required_ids(document["level"], document["environment"]["backend"])
        required &= set(document.get(BENCH, {}).get("subset") or required)
        line += f"; required and not tried: {', '.join(sorted(required - tried)) or 'nothing ran'}"
    return line


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Return the list of checks: level, id, time limit, the backends that require it, purpose."""
    rows = [("LEVEL", "CHECK", "LIMIT", "REQUIRED ON", "SHOWS THAT")]
    rows += [
        (
            check.level,
            check.id,
            f"{check.limit_s:g} s",
            ",".join(check.required) or "-",
            check.about,
        )
        for check in checks
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]])
        for row in rows
    ]
