"""What nvidia-smi, amd-smi and rocm-smi print, as values. Pure functions.

Only what was printed is returned: a key that is missing or that no number can be read from
becomes None. Forms: ``nvidia-smi --query-gpu=... --format=csv,noheader,nounits``; amd-smi's
``--json``, a list of GPUs or, in newer versions, an object with that list; rocm-smi's ``--json``,
an object with one member a card.
"""

from __future__ import annotations

import json
import re
from typing import Any, Iterator, Mapping, Sequence

NVIDIA_FIELDS = (
    "index",
    "pci.bus_id",
    "clocks.sm",
    "clocks.mem",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "mig.mode.current",
)
KEYS = (
    "clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "power_w",
    "power_cap_w",
    "partition_mode",
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class UnreadableError(ValueError):
    """A tool printed something in which the GPU is not found."""


def number(value: Any) -> float | None:
    """Return the number in what a tool printed: 132, "132 MHz", "(132Mhz)", {"value": 132}."""
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value)
    match = _NUMBER.search(str(value))
    return float(match.group()) if match else None


def same_address(one: str, other: str) -> bool:
    """Say whether two PCI addresses are one; the domain has four or eight digits."""
    return _address(one) == _address(other)


def _address(text: str) -> tuple[str, ...]:
    parts = re.split(r"[:.]", text.lower())
    return tuple(part.lstrip("0") or "0" for part in parts)


def nvidia_state(text: str, address: str | None, index: int) -> dict[str, Any]:
    """Return the state of one GPU from nvidia-smi's lines of ``NVIDIA_FIELDS``.

    Raises:
        UnreadableError: no line is this GPU's.
    """
    for line in text.strip().splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(NVIDIA_FIELDS):
            continue
        if same_address(fields[1], address) if address else fields[0] == str(index):
            values: list[Any] = [number(field) for field in fields[2:7]]
            mode = None if fields[7].startswith("[") else f"MIG {fields[7]}"
            return dict(zip(KEYS, [*values, mode]))
    raise UnreadableError(f"nvidia-smi has no line for the GPU at {address or index}")


def nvidia_processes(text: str) -> list[dict[str, Any]]:
    """Return process ids and MiB from ``--query-compute-apps=pid,used_memory``."""
    found = []
    for line in text.strip().splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 2 and fields[0].isdigit():
            found.append({"pid": int(fields[0]), "memory_mib": number(fields[1])})
    return found


def _amd_gpus(text: str) -> list[Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UnreadableError(f"amd-smi printed no JSON: {error}") from error
    if isinstance(document, Mapping):
        document = document.get("gpu_data", document.get("gpus", []))
    return document if isinstance(document, list) else []


def amd_index(static: str, address: str | None, index: int) -> int:
    """Return amd-smi's number of the GPU at an address, from ``amd-smi static --json``."""
    for gpu in _amd_gpus(static):
        bdf = _at(gpu, "bus", "bdf")
        if address and isinstance(bdf, str) and same_address(bdf, address):
            return int(gpu.get("gpu", index))
    return index


def amd_state(metric: str, static: str, index: int) -> dict[str, Any]:
    """Return the state of one GPU from ``amd-smi metric --json`` and ``static --json``.

    Raises:
        UnreadableError: the GPU is not in it.
    """
    now, fixed = _amd_gpu(metric, index), _amd_gpu(static, index)
    hottest = [_at(now, "temperature", place) for place in ("hotspot", "edge")]
    limits = [
        _at(fixed, "limit", name) for name in ("socket_power_limit", "power_limit", "max_power")
    ]
    limits.insert(0, _at(fixed, "limit", "ppt0", "socket_power_limit"))
    partition = _at(fixed, "partition", "compute_partition") or _at(
        fixed, "partition", "accelerator_partition"
    )
    memory = _at(fixed, "partition", "memory_partition")
    values = (
        number(_at(now, "clock", "gfx_0", "clk")),
        number(_at(now, "clock", "mem_0", "clk")),
        _first(hottest),
        number(_at(now, "power", "socket_power")),
        _first(limits),
        f"{partition}/{memory}" if partition and memory else partition,
    )
    return dict(zip(KEYS, values))


def _amd_gpu(text: str, index: int) -> Any:
    for gpu in _amd_gpus(text):
        if isinstance(gpu, Mapping) and gpu.get("gpu") == index:
            return gpu
    raise UnreadableError(f"amd-smi has no GPU {index}")


def amd_processes(text: str, index: int) -> list[dict[str, Any]]:
    """Return process ids and MiB from ``amd-smi process --json``."""
    found = []
    for entry in _at(_amd_gpu(text, index), "process_list") or []:
        information = _at(entry, "process_info")
        pid = number(_at(information, "pid"))
        if pid is None:
            continue
        size = number(_at(information, "memory_usage", "vram_mem"))
        unit = str(_at(information, "memory_usage", "vram_mem", "unit") or "B")
        scale = {"B": 1 / 2**20, "KB": 1 / 2**10, "MB": 1.0, "GB": 2.0**10}.get(unit.upper())
        known = size is not None and scale is not None
        found.append({"pid": int(pid), "memory_mib": size * scale if known else None})  # type: ignore[operator]
    return found


def rocm_state(text: str, index: int) -> dict[str, Any]:
    """Return the state of one GPU from rocm-smi's ``--json``; its keys vary between versions.

    Raises:
        UnreadableError: the card is not in it.
    """
    card = _rocm_document(text).get(f"card{index}")
    if not isinstance(card, Mapping):
        raise UnreadableError(f"rocm-smi has no card{index}")

    def find(*words: str) -> float | None:
        return _first(value for key, value in card.items() if all(w in key.lower() for w in words))

    compute = next((str(v) for k, v in card.items() if "compute partition" in k.lower()), None)
    hot = find("temperature", "junction")
    values = (
        find("sclk clock speed"),
        find("mclk clock speed"),
        find("temperature", "edge") if hot is None else hot,
        _first((find("average", "power"), find("current", "power"))),
        find("max graphics package power"),
        compute,
    )
    return dict(zip(KEYS, values))


def rocm_processes(text: str) -> list[dict[str, Any]]:
    """Return process ids and MiB from ``rocm-smi --showpids --json``."""
    found = []
    for key, value in (_rocm_document(text).get("system") or {}).items():
        if key.startswith("PID") and key[3:].isdigit():
            fields = [field.strip() for field in str(value).split(",")]
            size = number(fields[2]) if len(fields) > 2 else None
            found.append(
                {"pid": int(key[3:]), "memory_mib": None if size is None else size / 2**20}
            )
    return found


def _rocm_document(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UnreadableError(f"rocm-smi printed no JSON: {error}") from error
    return document if isinstance(document, Mapping) else {}


def _at(document: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def _first(values: Sequence[Any] | Iterator[Any]) -> float | None:
    return next((found for found in map(number, values) if found is not None), None)
