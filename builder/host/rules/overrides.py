"""Rules about HSA_OVERRIDE_GFX_VERSION and about GPUs that the image has no kernels for.

An override makes a GPU claim to be another target. It is judged for each GPU.
Sources: https://github.com/Crosstalk-Solutions/project-nomad/issues/810; AMD, gpus.yaml; ollama,
docs/gpu.mdx (per-GPU form); https://github.com/ROCm/ROCR-Runtime/issues/354 (empty value).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from builder.host.rules.ask import served, targets
from builder.host.rules.masks import MASKS, effective
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import Gpu, HostSnapshot

NAME = "HSA_OVERRIDE_GFX_VERSION"
_VALUE = re.compile(r"(\d+)\.(\d+)\.([0-9a-f]+)", re.IGNORECASE)
_SOURCE = "https://github.com/Crosstalk-Solutions/project-nomad/issues/810"


class Override(NamedTuple):
    """A variable with its value, and the GPUs that it is about."""

    name: str
    value: str
    gpus: tuple[Gpu, ...]

    @property
    def target(self) -> str | None:
        """Return the target that the value names; ``None`` where it is no version."""
        found = _VALUE.fullmatch(self.value.strip())
        if not found:
            return None
        return (
            f"gfx{int(found[1])}{int(found[2]):x}{int(found[3], 10):x}" if _small(found) else None
        )


def _small(found: re.Match[str]) -> bool:
    return all(part.isdecimal() and int(part) < 100 for part in found.groups())


def overrides(snapshot: HostSnapshot) -> Iterator[Override]:
    """Yield each override with the GPUs that it changes: one GPU, or all without their own."""
    given = snapshot.environment
    own = {
        int(name[len(NAME) + 1 :]): value
        for name, value in given.items()
        if name.startswith(f"{NAME}_") and name[len(NAME) + 1 :].isdecimal()
    }
    if NAME in given:
        rest = tuple(gpu for gpu in snapshot.gpus if gpu.index not in own)
        yield Override(NAME, given[NAME], rest)
    for index, value in sorted(own.items()):
        yield Override(
            f"{NAME}_{index}", value, tuple(gpu for gpu in snapshot.gpus if gpu.index == index)
        )


def family(gfx: str) -> tuple[str, str]:
    """Return major and minor of a target: gfx1030 is of 10.3, gfx90a of 9.0."""
    digits = gfx[len("gfx") :]
    return digits[:-2], digits[-2:-1]


def override_empty(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """Set and empty is read as 0.0.0 by older runtimes."""
    for one in overrides(snapshot):
        if not one.value.strip():
            yield Finding(
                code="HSA_OVERRIDE_EMPTY",
                severity="error",
                summary=f"{one.name} is set and empty, which is not the same as unset: older"
                " runtimes read it as version 0.0.0 and find no GPU.",
                evidence=(f"{one.name}=",),
                fix=f"unset {one.name}",
                source="https://github.com/ROCm/ROCR-Runtime/issues/354",
                explains=("OUT_OF_RESOURCES",),
            )


def override_malformed(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """Three numbers with dots, not a target's name."""
    for one in overrides(snapshot):
        if one.value.strip() and one.target is None:
            yield Finding(
                code="HSA_OVERRIDE_MALFORMED",
                severity="error",
                summary=f"{one.name}={one.value} is no version: three numbers are (10.3.0 for"
                " gfx1030).",
                evidence=(f"{one.name}={one.value}",),
                fix=f"unset {one.name}",
                source="ROCm, docs/reference/env-variables",
            )


def override_wrong_family(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """Code of another major generation is other machine code."""
    for one in overrides(snapshot):
        target = one.target
        wrong = [g for g in one.gpus if target and g.gfx and family(g.gfx)[0] != family(target)[0]]
        if not wrong:
            continue
        names = "; ".join(_native(gpu, snapshot, facts) for gpu in wrong)
        yield Finding(
            code="HSA_OVERRIDE_WRONG_FAMILY",
            severity="error",
            summary=f"{one.name}={one.value} makes GPUs of another generation run code of {target}:"
            f" {names}. It cannot run there.",
            evidence=(f"{one.name}={one.value}", *(f"GPU {g.index}: {g.gfx}" for g in wrong)),
            fix=f"unset {one.name}",
            source=_SOURCE,
            explains=("HSA_OVERRIDE_MIXED", "HSA_OVERRIDE_NEEDLESS", "GPU_PAGE_FAULT"),
        )


def override_mixed(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """One value for GPUs of different targets is wrong for at least one of them."""
    found = next((one for one in overrides(snapshot) if one.name == NAME), None)
    kinds = sorted({gpu.gfx for gpu in found.gpus if gpu.gfx}) if found else []
    if found is None or found.target is None or len(kinds) < 2:
        return None
    return Finding(
        code="HSA_OVERRIDE_MIXED",
        severity="error",
        summary=f"{NAME}={found.value} holds for all GPUs, and they differ: {', '.join(kinds)}. The"
        f" form for one GPU is {NAME}_N, where it is needed at all.",
        evidence=tuple(f"GPU {gpu.index}: {gpu.gfx}" for gpu in found.gpus),
        fix=f"unset {NAME}",
        source=_SOURCE,
        explains=("HSA_OVERRIDE_NEEDLESS", "HSA_OVERRIDE_UNSAFE"),
    )


def override_needless(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """A GPU that is that target, or has kernels of its own, needs none."""
    for one in overrides(snapshot):
        target, known = one.target, targets(snapshot, facts)
        needless = [g for g in one.gpus if target and (g.gfx == target or served(g.gfx, known))]
        if not needless or len(needless) < len(one.gpus):
            continue
        names = ", ".join(sorted({facts.product(gpu.gfx) for gpu in needless}))
        same = all(gpu.gfx == target for gpu in needless)
        does = "changes nothing" if same else "hides kernels that the image has for it"
        yield Finding(
            code="HSA_OVERRIDE_NEEDLESS",
            severity="warning",
            summary=f"{one.name}={one.value} is needless: {names} is supported natively; the"
            f" override {does}.",
            evidence=(f"{one.name}={one.value}", *(f"GPU {g.index}: {g.gfx}" for g in needless)),
            fix=f"unset {one.name}",
            source="AMD, rocm-docs gpus.yaml",
            explains=("HSA_OVERRIDE_UNSAFE",),
        )


def override_unsafe(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """Within a generation it often works, and nobody promises it."""
    for one in overrides(snapshot):
        target = one.target
        near = [
            gpu
            for gpu in one.gpus
            if target and gpu.gfx and gpu.gfx != target and family(gpu.gfx)[0] == family(target)[0]
        ]
        if not near or any(served(gpu.gfx, targets(snapshot, facts)) for gpu in near):
            continue
        other = any(family(gpu.gfx or "") != family(target or "") for gpu in near)
        how = (
            "of another minor family, whose instructions differ"
            if other
            else "of the same family: reports say that light work runs and heavy work may hang"
        )
        yield Finding(
            code="HSA_OVERRIDE_UNSAFE",
            severity="warning",
            summary=f"{one.name}={one.value} runs code of {target} on {near[0].gfx}, {how}. An"
            f" image with kernels for {near[0].gfx} is the safe way.",
            evidence=(f"{one.name}={one.value}", *(f"GPU {g.index}: {g.gfx}" for g in near)),
            source="ollama, docs/gpu.mdx",
        )


def image_lacks_target(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Compared before anything is run: the host's targets with the image's label."""
    known = targets(snapshot, facts)
    seen = _visible(snapshot)
    lacking = [gpu for gpu in seen if gpu.gfx and not served(gpu.gfx, known)]
    if not known or not lacking or any(True for one in overrides(snapshot) if one.value):
        return None
    some = any(served(gpu.gfx, known) for gpu in seen)
    names = ", ".join(sorted({facts.product(gpu.gfx) for gpu in lacking}))
    return Finding(
        code="IMAGE_LACKS_TARGET",
        severity="warning" if some else "error",
        summary=f'The image has no kernels for {names}: work on it ends with "invalid device'
        ' function" or "no kernel image".',
        evidence=(
            *(f"GPU {gpu.index}: {gpu.gfx}" for gpu in lacking),
            f"image: {', '.join(known)}",
        ),
        fix="rocm-torch matrix --json lists the targets (gfx) of each image",
        source="label io.rocm-torch.gfx of the image",
    )


def igpu_shadows(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """An integrated GPU without kernels is device 0, and the card beside it stays idle."""
    known, seen = targets(snapshot, facts), _visible(snapshot)
    if not known or len(seen) < 2 or served(seen[0].gfx, known):
        return None
    usable = [gpu for gpu in seen if served(gpu.gfx, known)]
    if not usable:
        return None
    best = max(usable, key=lambda gpu: gpu.vram_mib or 0)
    return Finding(
        code="IGPU_SHADOWS_DGPU",
        severity="warning",
        summary=f"Device 0 is {seen[0].gfx}, which the image has no kernels for;"
        f" {best.gfx} (GPU {best.index}) is the usable one.",
        evidence=tuple(
            f"GPU {gpu.index}: {gpu.gfx}, {gpu.vram_mib or '?'} MiB, {gpu.uuid or 'no UUID'},"
            f" {'has kernels' if served(gpu.gfx, known) else 'no kernels'}"
            for gpu in seen
        ),
        fix=""
        if any(name in snapshot.environment for name in MASKS)
        else f"export ROCR_VISIBLE_DEVICES={_identity(best)}",
        source="https://github.com/ROCm/TheRock/issues/3392",
        explains=("IMAGE_LACKS_TARGET",),
    )


def igpu_beside(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """With both kinds in reach, index 0 may be either."""
    seen = _visible(snapshot)
    kinds = {gpu.integrated for gpu in seen}
    if not {True, False} <= kinds and not (True in kinds and len(seen) > 1):
        return None
    known = targets(snapshot, facts)
    cards: Sequence[Gpu] = [
        gpu for gpu in seen if not gpu.integrated and (not known or served(gpu.gfx, known))
    ]
    if (
        igpu_shadows(snapshot, facts)
        or not cards
        or any(snapshot.environment.get(name) is not None for name in MASKS)
    ):
        return None
    return Finding(
        code="INTEGRATED_GPU_BESIDE",
        severity="info",
        summary="An integrated and a discrete GPU are both visible, and either may be device 0:"
        " choose by UUID or target, not by index.",
        evidence=tuple(
            f"GPU {gpu.index}: {gpu.gfx}, {'integrated' if gpu.integrated else 'discrete'}"
            for gpu in seen
        ),
        fix=f"export ROCR_VISIBLE_DEVICES={_identity(cards[0])}",
        source="https://github.com/ROCm/TheRock/issues/3392",
    )


def _identity(gpu: Gpu) -> str:
    """Return the UUID where the device has a real one (GPU-XX is none), else the index."""
    return gpu.uuid if gpu.uuid and re.fullmatch(r"GPU-[0-9a-f]{16}", gpu.uuid) else str(gpu.index)


def _visible(snapshot: HostSnapshot) -> tuple[Gpu, ...]:
    left = effective(snapshot)
    found: list[Gpu] = [gpu for index in left for gpu in snapshot.gpus if gpu.index == index]
    return tuple(found)


def _native(gpu: Gpu, snapshot: HostSnapshot, facts: HostFacts) -> str:
    if served(gpu.gfx, targets(snapshot, facts)):
        return f"{gpu.gfx} is supported natively"
    return f"GPU {gpu.index} is {facts.product(gpu.gfx)}"
