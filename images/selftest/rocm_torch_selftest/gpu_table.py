"""The checks of level gpu, in the order in which they run: what lies below torch comes first.

A CPU torch requires them as well, so that it never passes.
"""

from __future__ import annotations

from rocm_torch_selftest.check import CUDA, EVERY_BACKEND, GPU, Check


def _gpu(
    check_id: str,
    run: str,
    about: str,
    *,
    limit_s: float = 90,
    optional: tuple[str, ...] = (),
    needs_torch: bool = True,
) -> Check:
    """Return a row: required on every backend but the optional ones, in a process of its own."""
    required = tuple(name for name in EVERY_BACKEND if name not in optional)
    return Check(
        *(check_id, GPU, run, about, required), needs_torch=needs_torch, alone=True, limit_s=limit_s
    )


GPU_CHECKS = (
    _gpu("arch", "gpu_arch:run", "torch and its BLAS have code for each GPU", needs_torch=False),
    _gpu(
        "hip-kernel",
        "gpu_kernel:run",
        "a kernel compiled by hipRTC (NVRTC) runs without torch",
        needs_torch=False,
    ),
    _gpu(
        "devices", "gpu_devices:run", "HSA, HIP and torch see the same GPUs and each one computes"
    ),
    _gpu(
        "matmul", "gpu_matmul:run", "fp32, fp16 and bf16 products on the GPU are right", limit_s=300
    ),
    _gpu(
        "matmul-fp8",
        "gpu_matmul_fp8:run",
        "8-bit products are right where the GPU has them",
        limit_s=180,
    ),
    _gpu("precision", "gpu_precision:run", "the switches for reduced precision do what they say"),
    _gpu("memory", "gpu_memory:run", "1 GiB is filled and freed, and all counters agree"),
    _gpu("transfer", "gpu_transfer:run", "bytes survive the way to the GPU and back"),
    _gpu("conv", "gpu_conv:run", "convolutions and their gradients are right", limit_s=480),
    _gpu(
        "attention",
        "gpu_attention:run",
        "each attention backend of this build is right",
        limit_s=300,
    ),
    _gpu("amp", "gpu_amp:run", "autocast and the gradient scaler work in a training step"),
    # Outside of an image nothing promises a compiler; our images do.
    _gpu(
        "compile",
        "gpu_compile:run",
        "torch.compile makes kernels that compute right",
        limit_s=420,
        optional=(CUDA,),
    ),
    _gpu("graph", "gpu_queues:run_graph", "captured work replays"),
    _gpu("streams", "gpu_queues:run_streams", "streams wait for events"),
    _gpu("train", "gpu_train:run", "a small network learns", limit_s=300),
    _gpu("concurrent", "gpu_crowd:run_concurrent", "two processes share a GPU", limit_s=240),
    _gpu("idle", "gpu_idle:run", "a process that waits leaves the CPU alone"),
    _gpu(
        "allreduce",
        "gpu_crowd:run_allreduce",
        "GPUs add up with each other, where there are two",
        limit_s=240,
    ),
    _gpu("api", "gpu_api:run", "the calls of torch.cuda behave"),
)
