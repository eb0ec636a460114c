"""Check ``arch``: each GPU's target is among those that torch and its BLAS have code for.

It reads files and the kernel's topology and starts no runtime: a runtime may abort on exactly
the fault that this check is there to name.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from rocm_torch_selftest.arch.files import Offer, TorchFiles, blas_offers, torch_offer
from rocm_torch_selftest.arch.serving import TORCH, judge
from rocm_torch_selftest.checks import gpu_libraries
from rocm_torch_selftest.checks.gpu import NO_TORCH, without_gpu
from rocm_torch_selftest.context import Context, run_program
from rocm_torch_selftest.kfd import gpu_targets, override_target
from rocm_torch_selftest.known_lines import OVERRIDE_VARIABLE
from rocm_torch_selftest.outcome import CheckFailedError, failed, passed, skipped

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

# get_arch_list() is empty where no GPU is usable (pytorch issue 169414); what it reads is not.
_FLAGS = "import json, torch; print(json.dumps((torch._C._cuda_getArchFlags() or '').split()))"


def run(context: Context) -> Outcome:
    """Compare the targets of the GPUs with those in the files."""
    context.stage("look for torch's files")
    torch = gpu_libraries.files_of_torch()
    if torch is None:
        return failed(NO_TORCH)
    skip = without_gpu(torch.backend)
    if skip is not None:
        return skip
    context.stage("read the targets of the GPUs")
    targets = device_targets(torch.backend)
    context.stage("read the targets of torch and its libraries")
    offers = offers_of(torch)
    return verdict(targets, torch.backend, offers, os.environ)


def device_targets(backend: str) -> tuple[str, ...]:
    """Return the target of each GPU, from the kernel or the driver.

    Raises:
        CheckFailedError: there is a GPU node and no GPU behind it that can be named.
    """
    if backend == "hip":
        return tuple(gpu_targets().values())
    try:
        return gpu_libraries.cuda_targets()
    except gpu_libraries.LibraryError as error:
        raise CheckFailedError(f"The CUDA driver does not list its devices: {error}.") from error


def offers_of(torch: TorchFiles) -> tuple[Offer, ...]:
    """Return what torch and, on HIP, its BLAS libraries have code for.

    Where the code objects tell nothing, the flags that torch was compiled with stand in, read in
    a process of their own.
    """
    found = (
        Offer(TORCH, (), "the code of CUDA libraries is not read")
        if torch.backend == "cuda"
        else torch_offer(torch)
    )
    if not found.targets:
        flags = _compile_flags()
        if flags:
            found = Offer(TORCH, flags, "flags that torch was compiled with")
    return (found, *(blas_offers(torch) if torch.backend == "hip" else ()))


def _compile_flags() -> tuple[str, ...]:
    said = run_program([sys.executable, "-c", _FLAGS], limit_s=60)
    try:
        flags = json.loads(said.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return ()
    return tuple(sorted(str(flag) for flag in flags))


def verdict(
    targets: Sequence[str],
    backend: str,
    offers: Sequence[Offer],
    environment: Mapping[str, str],
) -> Outcome:
    """Judge all devices; the worst one decides.

    Args:
        targets: of the devices, in their order.
        backend: of torch.
        offers: what torch and its libraries have code for.
        environment: ``HSA_OVERRIDE_GFX_VERSION`` makes HIP take devices for another target.
    """
    if not targets:
        return skipped("No GPU says its target.", targets=[])
    override = environment.get(OVERRIDE_VARIABLE) if backend == "hip" else None
    claimed = override_target(override) if override else None
    wanted = {target: judge(claimed or target, backend, offers) for target in targets}
    data: dict[str, Any] = {
        "targets": list(targets),
        "override": override,
        "offers": {offer.library: list(offer.targets) for offer in offers},
        "sources": {offer.library: offer.source for offer in offers},
        "serving": {target: found.to_json() for target, found in wanted.items()},
    }
    if claimed is not None and set(targets) != {claimed}:
        note = f" {OVERRIDE_VARIABLE}={override} makes HIP take {', '.join(targets)} for {claimed}."
    else:
        note = ""
    for found in wanted.values():
        if found.served is False:
            return failed(found.detail + note, code=found.code, **data)
    for found in wanted.values():
        if found.served is None:
            return skipped(found.detail + note, code=found.code, **data)
    return passed(" ".join(found.detail for found in wanted.values()) + note, **data)
