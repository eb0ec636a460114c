"""Check ``hipify``: a small CUDA program is ported by hipify-perl and compiled for every target.

What a devel image is for, in small: whoever has CUDA sources ports them and compiles for the GPUs
of the cell. No GPU is needed for that, so it is not tried whether the program computes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rocm_torch_selftest.context import NO_CELL, Context, run_program
from rocm_torch_selftest.outcome import CheckFailedError, not_applicable, passed

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Sequence

    from rocm_torch_selftest.outcome import Outcome

# Each line with something to port: the header, memory, a launch, a shuffle of a warp, errors.
CUDA_SOURCE = """\
#include <cuda_runtime.h>
#include <cstdio>

__global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

int main() {
  const int n = 256;
  float *a, *b, *c;
  if (cudaMalloc(&a, n * sizeof(float)) != cudaSuccess) return 3;
  if (cudaMalloc(&b, n * sizeof(float)) != cudaSuccess) return 3;
  if (cudaMalloc(&c, n * sizeof(float)) != cudaSuccess) return 3;
  add<<<1, n>>>(a, b, c, n);
  cudaError_t status = cudaDeviceSynchronize();
  std::printf("%s\\n", cudaGetErrorString(status));
  return status == cudaSuccess ? 0 : 1;
}
"""
WANTED = ("hip/hip_runtime.h", "hipMalloc", "hipDeviceSynchronize", "hipGetErrorString")
# How a bundle of code objects names each; a compressed bundle begins with a word of its own.
_TARGET = re.compile(rb"amdgcn-amd-amdhsa--(gfx[0-9a-f]+)")
_COMPRESSED = b"CCOB"


def run(context: Context) -> Outcome:
    """Port the program, compile it for the targets of the cell, and look for each in the result."""
    cell = context.cell
    if cell is None:
        return not_applicable(NO_CELL)
    missing = {"hipcc", "hipify-perl"}.difference(cell.contents)
    if missing:
        return not_applicable(f"The cell does not promise {' and '.join(sorted(missing))}.")
    if not cell.gfx:
        return not_applicable("The cell names no GPU targets to compile for.")
    context.stage("hipify-perl")
    source = port(context.scratch)
    context.stage(f"hipcc for {', '.join(cell.gfx)}")
    compiled = compile_for(cell.gfx, source)
    judge(compiled.read_bytes(), cell.gfx)
    return passed(
        f"A CUDA kernel was ported and compiled for {', '.join(cell.gfx)}.",
        targets=list(cell.gfx),
        bytes=compiled.stat().st_size,
    )


def port(folder: Path) -> Path:
    """Write the CUDA program into ``folder`` and return the HIP program made of it.

    Raises:
        CheckFailedError: hipify-perl failed, or left something of CUDA in it.
    """
    cuda = folder / "add.cu"
    cuda.write_text(CUDA_SOURCE, encoding="utf-8")
    said = run_program(["hipify-perl", str(cuda)], limit_s=120)
    if said.status != 0:
        raise CheckFailedError(f"hipify-perl fails: {said.last_line}")
    left = sorted(set(re.findall(r"\bcuda\w*", said.stdout)))
    absent = [word for word in WANTED if word not in said.stdout]
    if left or absent:
        raise CheckFailedError(
            f"hipify-perl did not port the program: CUDA's {', '.join(left) or 'nothing'} is "
            f"left, and {', '.join(absent) or 'nothing'} is missing.",
            ported=said.stdout,
        )
    hip = folder / "add.hip.cpp"
    hip.write_text(said.stdout, encoding="utf-8")
    return hip


def compile_for(targets: Sequence[str], source: Path) -> Path:
    """Compile ``source`` for all targets at once and return the object file.

    Raises:
        CheckFailedError: hipcc refused; its last line that tells of an error is named.
    """
    compiled = source.with_suffix(".o")
    options = [f"--offload-arch={target}" for target in targets]
    argv = ["hipcc", *options, "-c", str(source), "-o", str(compiled)]
    said = run_program(argv, limit_s=500)
    if said.status != 0 or not compiled.is_file():
        errors = [line for line in said.stderr.splitlines() if "error:" in line]
        words = errors[0].strip() if errors else said.last_line
        raise CheckFailedError(f"hipcc does not compile for {', '.join(targets)}: {words}")
    return compiled


def judge(compiled: bytes, targets: Sequence[str]) -> None:
    """Raise ``CheckFailedError`` where the object has no code for one of ``targets``.

    In a compressed bundle the names cannot be read; that the compiler took the targets must do.
    """
    found = {name.decode() for name in _TARGET.findall(compiled)}
    absent = sorted(set(targets) - found)
    if absent and _COMPRESSED not in compiled:
        raise CheckFailedError(
            f"hipcc was asked for {', '.join(targets)} and made no code for {', '.join(absent)}.",
            found=sorted(found),
        )
