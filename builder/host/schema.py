"""The JSON Schema of a saved host state, made from the values themselves: one definition."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from builder.host.snapshot.document import LISTED, NAMED, SCHEMA
from builder.host.snapshot.model import HostSnapshot

_PLAIN = {"str": "string", "int": "integer", "bool": "boolean"}


def host_state_json_schema() -> dict[str, Any]:
    """Return the schema of ``rocm-torch/host-state/v1``. What has its default may be left out."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rocm-torch host state",
        "type": "object",
        "additionalProperties": False,
        "required": ["schema"],
        "properties": {
            "schema": {"const": SCHEMA},
            **{one.name: _of(one.name, str(one.type)) for one in fields(HostSnapshot)},
        },
    }


def _of(name: str, kind: str) -> dict[str, Any]:
    if name in LISTED:
        return {"type": "array", "items": _object(LISTED[name])}
    if name in NAMED:
        return {"type": "object", "additionalProperties": _object(NAMED[name])}
    return _value(kind)


def _object(kind: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {one.name: _value(str(one.type)) for one in fields(kind)},
    }


def _value(kind: str) -> dict[str, Any]:
    plain = kind.replace(" | None", "")
    if plain.startswith("tuple["):
        found = {"type": "array", "items": _value(plain[len("tuple[") : -len(", ...]")])}
    elif plain.startswith("dict["):
        inner = plain[len("dict[str, ") : -1]
        found = {"type": "object", "additionalProperties": _value(inner)}
    else:
        found = {"type": _PLAIN[plain]}
    return {"anyOf": [found, {"type": "null"}]} if kind != plain else found
