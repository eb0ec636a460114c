"""Check ``hip-kernel``: a kernel compiled at run time runs, without torch.

hipRTC and HIP (NVRTC and the driver on CUDA) are called through ctypes. Where this passes and
torch's own kernels fail, the fault is in torch; where this fails, it lies below.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks import gpu_libraries
from rocm_torch_selftest.checks.gpu import NO_TORCH, without_gpu
from rocm_torch_selftest.checks.gpu_libraries import LibraryError, ask
from rocm_torch_selftest.outcome import failed, passed, skipped

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

SOURCE = b"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
NAME = b"saxpy"
COUNT = 100_003  # odd, so that the last block is not full
BLOCK = 256
FACTOR = 3.0


@dataclass(frozen=True)
class Interface:
    """How the same steps are called by one vendor.

    Attributes:
        compiler: names of the library that compiles.
        runtime: names of the library that runs.
        rtc: prefix of the compiler's functions.
        code: what the compiled code is called there.
        init, load, function, malloc, to_device, launch, wait, from_device: function names.
        context: functions that make a context first; HIP has one by itself.
    """

    compiler: tuple[str, ...]
    runtime: tuple[str, ...]
    rtc: str
    code: str
    init: str
    load: str
    function: str
    malloc: str
    to_device: str
    launch: str
    wait: str
    from_device: str
    context: tuple[str, ...] = ()


INTERFACES = {
    "hip": Interface(
        compiler=gpu_libraries.HIPRTC,
        runtime=gpu_libraries.HIP,
        rtc="hiprtc",
        code="Code",
        init="hipInit",
        load="hipModuleLoadData",
        function="hipModuleGetFunction",
        malloc="hipMalloc",
        to_device="hipMemcpyHtoD",
        launch="hipModuleLaunchKernel",
        wait="hipDeviceSynchronize",
        from_device="hipMemcpyDtoH",
    ),
    "cuda": Interface(
        compiler=gpu_libraries.NVRTC,
        runtime=gpu_libraries.CUDA,
        rtc="nvrtc",
        code="CUBIN",
        init="cuInit",
        load="cuModuleLoadData",
        function="cuModuleGetFunction",
        malloc="cuMemAlloc_v2",
        to_device="cuMemcpyHtoD_v2",
        launch="cuLaunchKernel",
        wait="cuCtxSynchronize",
        from_device="cuMemcpyDtoH_v2",
        context=("cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"),
    ),
}


def run(context: Context) -> Outcome:
    """Compile, load and run one kernel on the first device and compare every number."""
    context.stage("look for torch's files")
    torch = gpu_libraries.files_of_torch()
    if torch is None:
        return failed(NO_TORCH)
    if context.device == "cpu":
        return skipped("This check needs a GPU: there is nothing to rehearse on the CPU.")
    skip = without_gpu(torch.backend)
    if skip is not None:
        return skip
    try:
        return saxpy(context, torch.backend)
    except LibraryError as error:
        return failed(f"A kernel without torch does not run: {error}.", backend=torch.backend)


def saxpy(context: Context, backend: str) -> Outcome:
    """Run ``y = a x + y`` in whole numbers, which float32 holds exactly.

    Raises:
        LibraryError: a library is missing or one of its functions refuses.
    """
    interface = INTERFACES[backend]
    options = []
    if backend == "cuda":
        options.append(f"--gpu-architecture={gpu_libraries.cuda_targets()[0]}")
    context.stage(f"load {interface.runtime[0]}")
    runtime = gpu_libraries.load(interface.runtime)
    ask(runtime, interface.init, 0)
    make_current(runtime, interface)
    context.stage(f"compile with {interface.rtc}")
    code = compiled(gpu_libraries.load(interface.compiler), interface, options)
    context.stage("load and run the kernel")
    got = launched(runtime, interface, code)
    wrong = sum(1 for index, value in enumerate(got) if value != FACTOR * (index % 1024) + 1)
    if wrong:
        return failed(f"{wrong} of {COUNT} results of a compiled kernel are wrong.", wrong=wrong)
    return passed(
        f"A kernel compiled by {interface.rtc} to {len(code)} bytes computes {COUNT} results "
        "without torch.",
        backend=backend,
        code_bytes=len(code),
    )


def make_current(runtime: Any, interface: Interface) -> None:
    """Make a context current where the interface wants one."""
    if interface.context:
        retain, set_current = interface.context
        held = ctypes.c_void_p()
        ask(runtime, retain, ctypes.byref(held), 0)
        ask(runtime, set_current, held)


def compiled(library: Any, interface: Interface, options: list[str]) -> bytes:
    """Compile the kernel and return its code.

    Raises:
        LibraryError: it does not compile; the compiler's log is in the message.
    """
    rtc = interface.rtc
    program = ctypes.c_void_p()
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    ask(
        *(library, f"{rtc}CreateProgram", ctypes.byref(program), ctypes.c_char_p(SOURCE)),
        *(ctypes.c_char_p(b"saxpy.cu"), 0, None, None),
    )
    try:
        ask(library, f"{rtc}CompileProgram", program, len(options), words)
    except LibraryError as error:
        log = _sized(library, program, f"{rtc}GetProgramLogSize", f"{rtc}GetProgramLog")
        text = log.decode("utf-8", "replace").strip(" \0\n")
        raise LibraryError(f"{error}: {text.splitlines()[0] if text else 'no log'}") from error
    name = f"{rtc}Get{interface.code}"
    return _sized(library, program, f"{name}Size", name)


def _sized(library: Any, program: ctypes.c_void_p, size_name: str, name: str) -> bytes:
    size = ctypes.c_size_t(0)
    ask(library, size_name, program, ctypes.byref(size))
    content = ctypes.create_string_buffer(max(size.value, 1))
    ask(library, name, program, content)
    return content.raw[: size.value]


def launched(runtime: Any, interface: Interface, code: bytes) -> list[float]:
    """Load the code, run the kernel on the first device and return its results."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    ask(runtime, interface.load, ctypes.byref(module), ctypes.c_char_p(code))
    ask(runtime, interface.function, ctypes.byref(function), module, ctypes.c_char_p(NAME))
    kind = ctypes.c_float * COUNT
    x, y = kind(*(float(index % 1024) for index in range(COUNT))), kind(*([1.0] * COUNT))
    size = ctypes.c_size_t(ctypes.sizeof(x))
    places = []
    for host in (x, y):
        place = ctypes.c_void_p()
        ask(runtime, interface.malloc, ctypes.byref(place), size)
        ask(runtime, interface.to_device, place, host, size)
        places.append(place)
    values = (ctypes.c_float(FACTOR), places[0], places[1], ctypes.c_int(COUNT))
    pointers = (ctypes.c_void_p * len(values))(
        *(ctypes.cast(ctypes.pointer(value), ctypes.c_void_p) for value in values)
    )
    grid = (COUNT + BLOCK - 1) // BLOCK
    sizes = [ctypes.c_uint(number) for number in (grid, 1, 1, BLOCK, 1, 1, 0)]
    ask(runtime, interface.launch, function, *sizes, None, pointers, None)
    ask(runtime, interface.wait)
    ask(runtime, interface.from_device, y, places[1], size)
    return list(y)
