"""The JSON lines of the engine's API as text: an error in them is no exception of the SDK."""

from __future__ import annotations

import json
from typing import Any

from builder.plan.causes.model import Output


def output_of_stream(text: str) -> Output:
    """Return the lines of a build, push, pull or load stream as readable output.

    A stream with an error in it failed, whatever the call returned; one without an error says
    nothing about success (exit code unknown): only a digest does.
    """
    lines: list[str] = []
    failed = False
    for raw in text.splitlines():
        try:
            entry = json.loads(raw)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            lines.append(raw)
            continue
        message = _error(entry)
        failed = failed or message is not None
        lines += message.splitlines() if message else _said(entry)
    return Output("\n".join(lines), exit_code=1 if failed else None)


def _error(entry: dict[str, Any]) -> str | None:
    detail = entry.get("errorDetail")
    if isinstance(detail, dict) and detail.get("message"):
        return str(detail["message"])
    return str(entry["error"]) if entry.get("error") else None


def _said(entry: dict[str, Any]) -> list[str]:
    if "stream" in entry:
        return str(entry["stream"]).splitlines()
    status = str(entry.get("status", "")).strip()
    name = entry.get("id")
    return [f"{name}: {status}" if name else status] if status else []
