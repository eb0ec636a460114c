"""Rules about the variables that hide GPUs, composed in the order in which they work.

ROCR_VISIBLE_DEVICES filters first; HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES where that is not
set, counts again from zero over what is left. Source: ROCm, docs/conceptual/gpu-isolation.md; that
the indices are relative to what ROCR left is derived from reports such as
https://github.com/mcmonkeyprojects/SwarmUI/issues/565.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import Gpu, HostSnapshot

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
ORDINAL = "GPU_DEVICE_ORDINAL"
MASKS = (ROCR, HIP, CUDA, ORDINAL)
_SOURCE = "ROCm, docs/conceptual/gpu-isolation.md"
_PCI = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_UUID = re.compile(r"GPU-[0-9a-f]+", re.IGNORECASE)
_NONE_OF_IT = frozenset({"all", "none", "void"})


class Layer(NamedTuple):
    """One mask: the variable, its value, and what is left after it, as indices of the topology."""

    name: str
    value: str
    left: tuple[int, ...]


def compose(snapshot: HostSnapshot) -> tuple[Layer, ...]:
    """Apply the masks one after the other and return what each leaves.

    Empty values leave everything: releases differ in what they make of them, and a rule of its
    own says so.
    """
    left: tuple[int, ...] = tuple(range(count(snapshot)))
    layers: list[Layer] = []
    for name in _applied(snapshot):
        value = snapshot.environment[name]
        left = tuple(_kept(value, left, snapshot.gpus))
        layers.append(Layer(name, value, left))
    return tuple(layers)


def count(snapshot: HostSnapshot) -> int:
    """Return the number of GPUs of the topology."""
    return max(len(snapshot.gpus), snapshot.kfd_gpu_nodes or 0)


def effective(snapshot: HostSnapshot) -> tuple[int, ...]:
    """Return the indices that are left after all masks."""
    layers = compose(snapshot)
    return layers[-1].left if layers else tuple(range(count(snapshot)))


def _applied(snapshot: HostSnapshot) -> Iterator[str]:
    given = snapshot.environment
    if given.get(ROCR):
        yield ROCR
    second = next((name for name in (HIP, CUDA) if given.get(name)), None)
    if second:
        yield second


def _kept(value: str, left: Sequence[int], gpus: Sequence[Gpu]) -> Iterator[int]:
    """Yield what a list of indices and UUIDs keeps; the first that is not known ends the list."""
    seen = set()
    for word in (part.strip() for part in value.split(",")):
        found = _position(word, left, gpus)
        if found is None or found in seen:
            return
        seen.add(found)
        yield found


def _position(word: str, left: Sequence[int], gpus: Sequence[Gpu]) -> int | None:
    if word.isdecimal():
        return left[int(word)] if int(word) < len(left) else None
    uuids = {(gpu.uuid or "").lower(): gpu.index for gpu in gpus if gpu.uuid}
    index = uuids.get(word.lower())
    return index if index in left else None


def mask_empty(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Nothing is left after all masks."""
    layers = compose(snapshot)
    if not layers or not count(snapshot) or layers[-1].left:
        return None
    first = next(layer for layer in layers if not layer.left)
    if _syntax(first.value):
        return None  # the rule about its syntax says more
    both = " on top of ".join(f"{layer.name}={layer.value}" for layer in reversed(layers))
    reason = (
        "the second counts again from zero over what the first left"
        if len(layers) > 1 and layers[0].left
        else "it names no GPU that exists"
    )
    keep = [layer.name for layer in layers if layer.name != layers[0].name] or [layers[0].name]
    return Finding(
        code="VISIBLE_MASK_EMPTY",
        severity="error",
        summary=f"{both} leaves none of the {count(snapshot)} GPUs: {reason}.",
        evidence=tuple(f"{one.name}={one.value} leaves {_set(one.left)}" for one in layers),
        fix=f"unset {' '.join(keep)}",
        source=_SOURCE,
        explains=("VISIBLE_MASKS_BOTH", "VISIBLE_MASK_OUT_OF_RANGE", "HIP_CUDA_DIFFER"),
    )


def mask_pci(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """PCI addresses are no form of any of these variables."""
    for name, value in _set_masks(snapshot):
        if _PCI.search(value):
            places = {gpu.pci: gpu for gpu in snapshot.gpus}
            gpu = places.get(value.strip())
            place = f" That GPU has index {gpu.index}." if gpu else ""
            yield Finding(
                code="VISIBLE_MASK_PCI_ADDRESS",
                severity="error",
                summary=f"{name}={value}: a PCI address is not understood there. Lists of indices"
                f" are, and ROCR_VISIBLE_DEVICES takes UUIDs too.{place}",
                evidence=(f"{name}={value}",),
                fix=f"unset {name}",
                source=_SOURCE,
                explains=("VISIBLE_MASK_OUT_OF_RANGE",),
            )


def mask_word(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """Words such as all belong to the container toolkit and to CDI, not to these variables."""
    for name, value in _set_masks(snapshot):
        if value.strip().lower() in _NONE_OF_IT:
            yield Finding(
                code="VISIBLE_MASK_WORD",
                severity="error",
                summary=f"{name}={value}: words are not understood there. To see every GPU leave it"
                ' unset; "all" belongs to AMD_VISIBLE_DEVICES of the container toolkit.',
                evidence=(f"{name}={value}",),
                fix=f"unset {name}",
                source=_SOURCE,
            )


def mask_out_of_range(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """An index that does not exist ends the list, so that what stands behind it is lost too."""
    for layer in compose(snapshot):
        words = [word.strip() for word in layer.value.split(",")]
        if layer.left and len(layer.left) < len(words) and not _syntax(layer.value):
            yield Finding(
                code="VISIBLE_MASK_OUT_OF_RANGE",
                severity="warning",
                summary=f"{layer.name}={layer.value} keeps {_set(layer.left)} only: the list ends"
                " at the first entry that names no GPU, or one twice.",
                evidence=(f"GPUs: {count(snapshot)}", f"{layer.name}={layer.value}"),
                fix=f"unset {layer.name}",
                source=_SOURCE,
            )


def masks_both(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Two layers can be right and are read wrongly by the next person."""
    layers = compose(snapshot)
    if len(layers) < 2 or not layers[-1].left:
        return None
    return Finding(
        code="VISIBLE_MASKS_BOTH",
        severity="warning",
        summary=f"{layers[0].name} and {layers[1].name} are both set: the second counts over what"
        f" the first left. GPU {_set(layers[-1].left)} of the topology remains. Use one of them.",
        evidence=tuple(f"{one.name}={one.value} leaves {_set(one.left)}" for one in layers),
        fix=f"unset {layers[1].name}",
        source=_SOURCE,
        explains=("HIP_CUDA_DIFFER",),
    )


def hip_cuda_differ(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The two have one meaning on AMD; with different values only one of them is meant."""
    given = snapshot.environment
    if not given.get(HIP) or not given.get(CUDA) or given[HIP] == given[CUDA]:
        return None
    return Finding(
        code="HIP_CUDA_DIFFER",
        severity="warning",
        summary=f"{HIP}={given[HIP]} and {CUDA}={given[CUDA]} contradict each other: they mean the"
        " same on AMD.",
        evidence=(f"{HIP}={given[HIP]}", f"{CUDA}={given[CUDA]}"),
        fix=f"unset {CUDA}",
        source=_SOURCE,
    )


def mask_set_empty(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """Set and empty differs from unset, and releases differ in what they make of it."""
    for name in MASKS:
        if snapshot.environment.get(name) == "":
            yield Finding(
                code="VISIBLE_MASK_SET_EMPTY",
                severity="warning",
                summary=f"{name} is set and empty: some releases take that as no mask, others as"
                " no GPU.",
                evidence=(f"{name}=",),
                fix=f"unset {name}",
                source="https://github.com/ollama/ollama: docs/gpu.mdx",
            )


def uuid_for_hip(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """UUIDs are documented for ROCR's variable only."""
    for name in (HIP, CUDA, ORDINAL):
        value = snapshot.environment.get(name, "")
        if _UUID.search(value):
            yield Finding(
                code="VISIBLE_MASK_UUID",
                severity="warning",
                summary=f"{name}={value}: UUIDs are documented for {ROCR} only.",
                evidence=(f"{name}={value}",),
                fix=f"unset {name}",
                source=_SOURCE,
            )


def toolkit_variable(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """AMD_VISIBLE_DEVICES is read by a runtime before the container starts, by nothing inside."""
    value = snapshot.environment.get("AMD_VISIBLE_DEVICES")
    if value is None or snapshot.kfd or snapshot.is_wsl or snapshot.container is None:
        return None
    return Finding(
        code="TOOLKIT_NOT_USED",
        severity="warning",
        summary=f"AMD_VISIBLE_DEVICES={value} is set and no node came in: only AMD's container"
        " runtime reads it.",
        evidence=(f"AMD_VISIBLE_DEVICES={value}",),
        fix=f"docker run --runtime=amd -e AMD_VISIBLE_DEVICES={value or 'all'} IMAGE",
        source="ROCm/container-toolkit, docs/container-runtime/running-workloads.rst",
    )


def _set_masks(snapshot: HostSnapshot) -> Iterator[tuple[str, str]]:
    for name in MASKS:
        value = snapshot.environment.get(name)
        if value:
            yield name, value


def _syntax(value: str) -> bool:
    return bool(_PCI.search(value)) or value.strip().lower() in _NONE_OF_IT


def _set(indices: Sequence[int]) -> str:
    return ", ".join(str(index) for index in indices) or "none"
