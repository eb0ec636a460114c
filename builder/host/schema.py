"""The JSON Schema of a saved snapshot, made from the annotations that reading checks as well."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from builder.host.snapshot.document import LISTED, NAMED, SCHEMA
from builder.host.snapshot.model import HostSnapshot

_PLAIN = {"str": "string", "int": "integer", "bool": "boolean"}


def host_state_json_schema() -> dict[str, Any]:
    """Return the schema of ``rocm-torch/host-state/v1`` (JSON Schema 2020-12)."""
    properties: dict[str, Any] = {"schema": {"const": SCHEMA}}
    for field in fields(HostSnapshot):
        if field.name in LISTED:
            properties[field.name] = {"type": "array", "items": _object(LISTED[field.name])}
        elif field.name in NAMED:
            properties[field.name] = _named(_object(NAMED[field.name]))
        else:
            properties[field.name] = _kind(str(field.type))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What a host, or the inside of a container, has for the GPU",
        "type": "object",
        "properties": properties,
        "required": ["schema"],
        "additionalProperties": False,
    }


def _object(kind: Any) -> dict[str, Any]:
    members = fields(kind)
    needed = [
        one.name for one in members if one.default is MISSING and one.default_factory is MISSING
    ]
    return {
        "type": "object",
        "properties": {one.name: _kind(str(one.type)) for one in members},
        "required": needed,
        "additionalProperties": False,
    }


def _named(inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": inner}


def _kind(annotation: str) -> dict[str, Any]:
    """Return the schema of the few forms of annotation that snapshots use."""
    plain = annotation.removesuffix(" | None")
    if plain.startswith("tuple["):
        found = {"type": "array", "items": _kind(plain[len("tuple[") : -len(", ...]")])}
    elif plain.startswith("dict["):
        found = _named(_kind(plain[len("dict[str, ") : -1]))
    else:
        found = {"type": _PLAIN[plain]}
    return found if plain == annotation else {"anyOf": [found, {"type": "null"}]}
