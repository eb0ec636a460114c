"""A snapshot as JSON: saved on one machine, read on another, with what is private taken out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import TYPE_CHECKING, Any

from builder.host.snapshot.model import DeviceNode, Engine, Gpu, HostSnapshot, Place, ToolOutput
from builder.host.snapshot.private import without_private

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = "rocm-torch/host-state/v1"
LISTED: dict[str, Any] = {"nodes": DeviceNode, "gpus": Gpu, "engines": Engine}
NAMED: dict[str, Any] = {"places": Place, "tools": ToolOutput}


def to_document(snapshot: HostSnapshot, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON form (``rocm-torch/host-state/v1``) without names, addresses and tokens.

    What has its default is left out, so that a hand-written state can be as short.

    Args:
        snapshot: what was seen.
        names: words that tell whose machine it is (user, host name): taken out wherever they stand.
    """
    document: dict[str, Any] = {"schema": SCHEMA}
    for field in fields(snapshot):
        value = getattr(snapshot, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if value != default:
            document[field.name] = _plain(value)
    clean: dict[str, Any] = without_private(document, names)
    return clean


def from_document(document: Mapping[str, Any]) -> HostSnapshot:
    """Read the JSON form.

    Raises:
        ValueError: it is not one, and why: a key that is not known, or a value of another type.
    """
    if document.get("schema") != SCHEMA:
        raise ValueError(f"its schema is {document.get('schema')!r}, not {SCHEMA!r}")
    values = {key: value for key, value in document.items() if key != "schema"}
    known = {field.name: field for field in fields(HostSnapshot)}
    made: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"the key {key!r} is not known")
        made[key] = _typed(key, value, str(known[key].type))
    return HostSnapshot(**made)


def _typed(key: str, value: Any, kind: str) -> Any:
    if key in LISTED:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{key} is no list: {value!r}")
        return tuple(_made(LISTED[key], one, f"{key}[{n}]") for n, one in enumerate(value))
    if key in NAMED:
        if not isinstance(value, Mapping):
            raise ValueError(f"{key} is no object: {value!r}")
        return {name: _made(NAMED[key], one, f"{key}.{name}") for name, one in value.items()}
    return _checked(key, value, kind)


def _made(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is no object: {value!r}")
    types = {field.name: str(field.type) for field in fields(kind)}
    for name in value:
        if name not in types:
            raise ValueError(f"the key {where}.{name} is not known")
    try:
        return kind(
            **{name: _checked(f"{where}.{name}", one, types[name]) for name, one in value.items()}
        )
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None


def _checked(where: str, value: Any, kind: str) -> Any:
    """Return a value of a plain type; its annotation is the only definition of what it may be."""
    if value is None and "None" in kind:
        return None
    plain = kind.replace(" | None", "")
    if plain.startswith("tuple["):
        inner = plain[len("tuple[") : -len(", ...]")]
        if isinstance(value, (list, tuple)):
            return tuple(_checked(f"{where}[{n}]", one, inner) for n, one in enumerate(value))
    elif plain.startswith("dict["):
        inner = plain[len("dict[str, ") : -1]
        if isinstance(value, Mapping):
            return {str(key): _checked(f"{where}.{key}", one, inner) for key, one in value.items()}
    else:
        wanted = {"str": str, "int": int, "bool": bool}[plain]
        if isinstance(value, wanted) and (plain == "bool" or not isinstance(value, bool)):
            return value
    raise ValueError(f"{where} is {value!r}, which is no {kind}")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value
