"""The libraries below torch, reached through ctypes: HSA, HIP, hipRTC, and CUDA's counterparts.

What they say without torch tells a broken driver or HIP from a broken torch.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Iterator, Sequence

from rocm_torch_selftest.arch.files import TorchFiles, find_torch

HSA = ("libhsa-runtime64.so.1", "libhsa-runtime64.so")
HIP = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
HIPRTC = ("libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", *HIP)
CUDA = ("libcuda.so.1",)
NVML = ("libnvidia-ml.so.1",)
NVRTC = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")
_SYSTEM = ("/opt/rocm/lib", "/opt/rocm/lib64", "/usr/local/cuda/lib64")
_HSA_GPU = 1  # hsa_device_type_t
_HSA_AGENT_DEVICE = 17  # HSA_AGENT_INFO_DEVICE
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


class LibraryError(Exception):
    """A library is not there, or one of its functions refused."""


def files_of_torch() -> TorchFiles | None:
    """Return the torch of this Python, without importing it."""
    try:
        return find_torch()
    except (ImportError, ValueError):
        return None


def load(names: Sequence[str]) -> Any:
    """Load the first library of a list that is there: beside torch, in ROCm, on the usual path.

    Raises:
        LibraryError: none of them loads.
    """
    tried: list[str] = []
    for path in _paths(names):
        try:
            return ctypes.CDLL(path)
        except OSError as error:  # noqa: PERF203 - the next place may have it
            tried.append(str(error))
    raise LibraryError(f"{names[0]} does not load: {tried[-1]}")


def _paths(names: Sequence[str]) -> Iterator[str]:
    folders = [Path(name) for name in _SYSTEM]
    torch = files_of_torch()
    if torch is not None:
        packages = torch.folder.parent
        beside = [torch.folder / "lib", *sorted(packages.glob("_rocm_sdk*/lib"))]
        folders = [*beside, *sorted(packages.glob("nvidia/*/lib")), *folders]
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                yield str(folder / name)
        # Wheels of torch may carry a copy with a hash in its name: libnvrtc-672ee683.so.11.2.
        for file in sorted(folder.glob(names[0].split(".")[0] + "-*.so*")):
            if "builtins" not in file.name:
                yield str(file)
    yield from names


def ask(library: Any, name: str, *arguments: Any) -> None:
    """Call a function whose result is 0 when it worked.

    Raises:
        LibraryError: the function is missing or its result is another one.
    """
    try:
        function = getattr(library, name)
    except AttributeError as error:
        raise LibraryError(f"{name} is not in the library") from error
    status = int(function(*arguments))
    if status != 0:
        raise LibraryError(f"{name} returned {status}")


def hsa_gpus() -> int:
    """Count the GPU agents of the HSA runtime.

    Raises:
        LibraryError: the runtime is not there or does not start.
    """
    library = load(HSA)
    ask(library, "hsa_init")
    kinds: list[int] = []

    def visit(agent: int, _data: int | None) -> int:
        kind = ctypes.c_uint32(0)
        status = int(
            library.hsa_agent_get_info(
                ctypes.c_uint64(agent), ctypes.c_int(_HSA_AGENT_DEVICE), ctypes.byref(kind)
            )
        )
        kinds.append(kind.value)
        return status

    visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)(visit)
    try:
        ask(library, "hsa_iterate_agents", visitor, None)
    finally:
        library.hsa_shut_down()
    return kinds.count(_HSA_GPU)


def hip_devices() -> int:
    """Count the devices of HIP; "no device" is 0 and no error.

    Raises:
        LibraryError: HIP is not there or refuses.
    """
    count = ctypes.c_int(0)
    library = load(HIP)
    status = int(library.hipGetDeviceCount(ctypes.byref(count)))
    if status not in (0, 100):  # hipErrorNoDevice
        raise LibraryError(f"hipGetDeviceCount returned {status}")
    return count.value


def nvml_devices() -> int:
    """Count the devices of NVIDIA's management library.

    Raises:
        LibraryError: the library is not there or refuses.
    """
    library = load(NVML)
    ask(library, "nvmlInit_v2")
    count = ctypes.c_uint(0)
    try:
        ask(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    finally:
        library.nvmlShutdown()
    return count.value


def cuda_targets() -> tuple[str, ...]:
    """Return the target (``sm_90``) of each device of the CUDA driver.

    Raises:
        LibraryError: the driver is not there or refuses.
    """
    library = load(CUDA)
    ask(library, "cuInit", 0)
    count = ctypes.c_int(0)
    ask(library, "cuDeviceGetCount", ctypes.byref(count))
    found = []
    for index in range(count.value):
        numbers = []
        for attribute in _CAPABILITY:
            value = ctypes.c_int(0)
            ask(library, "cuDeviceGetAttribute", ctypes.byref(value), attribute, index)
            numbers.append(value.value)
        found.append(f"sm_{numbers[0]}{numbers[1]}")
    return tuple(found)
