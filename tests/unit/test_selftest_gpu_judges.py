"""How the GPU checks judge what they measured, without a GPU and without torch."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocm_torch_selftest.checks import (
    gpu_api,
    gpu_attention,
    gpu_compile,
    gpu_crowd,
    gpu_devices,
    gpu_idle,
    gpu_kernel,
    gpu_libraries,
    gpu_matmul_fp8,
    gpu_memory,
    gpu_precision,
    gpu_train,
    rounding,
)
from rocm_torch_selftest.context import Context
from rocm_torch_selftest.outcome import CheckFailedError

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30


# devices


def counts(agents: int | str, runtime: int | str, torch: int) -> dict[str, int | str]:
    return {"agents": agents, "runtime": runtime, "torch": torch}


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (counts(0, 0, 0), "HSA (or NVML) finds no device"),
        (counts(2, 0, 0), "HIP (or CUDA) sees no device"),
        (counts(2, 2, 0), "Torch sees no device"),
        (counts("unknown: no library", 2, 0), "Torch sees no device"),
        (counts(2, 2, 1), "count differently"),
        (counts(3, 2, 2), "lost between HSA and torch"),
    ],
)
def test_the_layer_that_loses_devices_is_named(layers: dict[str, int | str], words: str) -> None:
    problem = gpu_devices.judge(layers, {}, "hip")
    assert problem is not None
    assert words in problem
    assert f"torch {layers['torch']}" in problem


def test_equal_counts_hidden_devices_and_a_layer_that_cannot_be_asked_are_right() -> None:
    assert gpu_devices.judge(counts(2, 2, 2), {}, "hip") is None
    assert gpu_devices.judge(counts(8, 1, 1), {"HIP_VISIBLE_DEVICES": "0"}, "hip") is None
    assert gpu_devices.judge(counts("unknown", "unknown", 1), {}, "hip") is None
    assert gpu_devices.judge(counts(8, 1, 1), {}, "cuda") is None


def test_zero_devices_name_the_variable_that_hides_them() -> None:
    problem = gpu_devices.judge(counts(1, 0, 0), {"HIP_VISIBLE_DEVICES": ""}, "hip")
    assert "hidden by HIP_VISIBLE_DEVICES=" in str(problem)


# rounding


@given(inner=st.integers(1, 2**20), name=st.sampled_from(sorted(rounding.UNIT_ROUNDOFF)))
def test_the_bound_grows_with_the_inner_size_and_never_above_the_proven_one(
    inner: int, name: str
) -> None:
    how = rounding.of_type(name)
    bound = rounding.relative_bound(inner, how)
    assert 0 < bound <= rounding.relative_bound(inner + 1, how)
    proven = max(inner, 2) * how.sums
    if proven < 0.5:
        assert bound <= proven / (1 - proven) * (1 + 1e-9)


def test_half_types_are_summed_in_float32_and_tf32_concerns_float32_only() -> None:
    for name in ("float16", "bfloat16"):
        assert rounding.of_type(name).sums == 2.0**-24
        assert rounding.of_type(name, tf32=True) == rounding.of_type(name)
    assert rounding.of_type("float32", tf32=True).factors == rounding.TF32_ROUNDOFF


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_reduced_precision_allows_more_and_not_anything(dtype: str) -> None:
    off = rounding.relative_bound(1024, gpu_precision.rounding_of(dtype, reduced=False))
    on = rounding.relative_bound(1024, gpu_precision.rounding_of(dtype, reduced=True))
    assert off < on < 0.02
    middle = (off + on) / 2
    assert gpu_precision.judge(dtype, middle, 1024, reduced=True) is None
    assert "off" in str(gpu_precision.judge(dtype, middle, 1024, reduced=False))


@pytest.mark.parametrize(
    ("backend", "target", "name"),
    [
        ("hip", "gfx942:sramecc+:xnack-", "float8_e4m3fnuz"),
        ("hip", "gfx950", "float8_e4m3fn"),
        ("hip", "gfx1201", "float8_e4m3fn"),
        ("hip", "gfx90a", None),
        ("cuda", "sm_90", "float8_e4m3fn"),
        ("cuda", "sm_120", "float8_e4m3fn"),
        ("cuda", "sm_86", None),
    ],
)
def test_each_device_has_its_own_8_bit_type_or_none(
    backend: str, target: str, name: str | None
) -> None:
    assert gpu_matmul_fp8.type_name(backend, target) == name


# memory

BEFORE = gpu_memory.Counters(0, 2 << 20, 60 * GIB, 64 * GIB)
HELD = gpu_memory.Counters(GIB, GIB + (2 << 20), 59 * GIB, 64 * GIB)


def test_counters_that_agree_are_right() -> None:
    assert gpu_memory.judge(BEFORE, HELD, BEFORE, GIB, shared=False) is None


@pytest.mark.parametrize(
    ("held", "after", "peak", "words"),
    [
        (replace(HELD, allocated=0), BEFORE, GIB, "Torch counts 0 bytes more"),
        (replace(HELD, reserved=5), BEFORE, GIB, "contradict"),
        (HELD, BEFORE, 0, "contradict"),
        (HELD, replace(BEFORE, allocated=GIB), GIB, "still counted after freeing"),
        (replace(HELD, free=60 * GIB), BEFORE, GIB, "free memory fell by 0"),
        (HELD, replace(BEFORE, free=59 * GIB), GIB, "free memory rose by 0"),
    ],
)
def test_a_counter_that_disagrees_is_named(
    held: gpu_memory.Counters, after: gpu_memory.Counters, peak: int, words: str
) -> None:
    assert words in str(gpu_memory.judge(BEFORE, held, after, peak, shared=False))


def test_the_device_counter_of_an_apu_is_not_judged() -> None:
    held = replace(HELD, free=61 * GIB)
    assert gpu_memory.judge(BEFORE, held, BEFORE, GIB, shared=True) is None


# training


def test_a_loss_that_falls_is_right_and_its_roughness_is_known() -> None:
    smooth = [2.0 * 0.9**step for step in range(60)]
    assert gpu_train.judge(smooth) is None
    assert gpu_train.course(smooth).roughness == 0.0
    rough = [loss * (1.2 if step % 2 else 0.8) for step, loss in enumerate(smooth)]
    assert gpu_train.judge(rough) is None
    assert gpu_train.course(rough).roughness > 0.5
    assert gpu_train.course(rough).largest_rise > 0.1


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([2.3] * 60, "must fall below"),
        ([2.0, 1.0, float("nan"), 0.1], "step 2 is nan"),
        ([2.0, float("inf")], "step 1 is inf"),
        ([1.0 + step for step in range(20)], "must fall below"),
    ],
)
def test_a_loss_that_does_not_fall_or_is_no_number_is_named(
    losses: list[float], words: str
) -> None:
    assert words in str(gpu_train.judge(losses))


@given(st.lists(st.floats(0.0, 1e6), min_size=2, max_size=100))
def test_any_finite_course_is_described(losses: list[float]) -> None:
    found = gpu_train.course(losses)
    assert found.roughness >= 0
    assert (gpu_train.judge(losses) is None) is (found.last < 0.5 * found.first)


# idle, several processes


def test_a_process_that_spins_while_it_waits_is_named() -> None:
    assert gpu_idle.judge(0.01, 3.0).status == "pass"
    found = gpu_idle.judge(2.9, 3.0)
    assert (found.status, found.data["code"]) == ("fail", "IDLE_SPIN")
    assert "97%" in found.detail


def test_processes_that_took_turns_did_not_run_together() -> None:
    together = [{"started": 1.0, "ended": 3.0}, {"started": 1.5, "ended": 3.5}]
    assert gpu_crowd.overlap_seconds(together) == 1.5
    in_turn = [{"started": 1.0, "ended": 3.0}, {"started": 3.0, "ended": 5.0}]
    assert gpu_crowd.overlap_seconds(in_turn) <= 0


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (None, 1, "ended with status 1: the last words"),
        (None, 0, "ended with status 0: the last words"),
        (None, -9, "did not end"),
        ({"problem": "3 of 7 sums are wrong."}, 0, "3 of 7 sums are wrong."),
        ({"sums": 7}, 3, "ended with status 3"),
    ],
)
def test_a_process_without_a_right_answer_is_named(
    tmp_path: Path, answer: dict[str, Any] | None, status: int, words: str
) -> None:
    (tmp_path / "log").write_text("first\nthe last words\n")
    if answer is not None:
        (tmp_path / "answer").write_text(json.dumps(answer))
    with pytest.raises(CheckFailedError) as caught:
        gpu_crowd.answer_of(tmp_path, status, 1)
    assert caught.value.detail.startswith("Process 1")
    assert words in caught.value.detail


# attention, compile, api


def test_only_what_torch_says_of_an_absent_backend_is_an_absence() -> None:
    assert gpu_attention.is_absence("No available kernel. Aborting execution.")
    assert not gpu_attention.is_absence("HIP error: an illegal memory access was encountered")
    assert not gpu_attention.is_absence("CUDA error: operation not supported")


def test_attention_needs_the_plain_way_in_each_type() -> None:
    every = {f"MATH {dtype}": 0.001 for dtype in gpu_attention.TYPES}
    absent = {"FLASH_ATTENTION float16": "No available kernel."}
    assert gpu_attention.judge(every, absent).status == "pass"
    found = gpu_attention.judge({"MATH float16": 0.001}, absent)
    assert found.status == "fail"
    assert "bfloat16" in found.detail


def test_an_image_without_compiler_or_headers_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert gpu_compile.missing_tools() == ["a C compiler", str(tmp_path / "Python.h")]


def test_only_gpu_kernels_count_as_kernels(tmp_path: Path) -> None:
    for name in ("a/x.cubin", "b/y.hsaco", "c/z.so"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"")
    assert gpu_compile.count_kernels(tmp_path) == 2


def test_calls_that_programs_rely_on_fail_and_the_others_are_told() -> None:
    assert gpu_api.judge({}).status == "pass"
    found = gpu_api.judge({"power_draw": "ModuleNotFoundError: amdsmi"})
    assert found.status == "pass"
    assert "power_draw" in found.detail
    found = gpu_api.judge({"Event": "gives another answer than it must"})
    assert found.status == "fail"
    assert "Event (gives another answer" in found.detail


def test_a_call_that_raises_or_answers_wrong_deviates() -> None:
    def refuses(_torch: Any, _device: str) -> bool:
        raise RuntimeError("not implemented\nmore")

    assert (
        gpu_api.deviation(gpu_api.Call("x", refuses), None, "") == "RuntimeError: not implemented"
    )
    assert gpu_api.deviation(gpu_api.Call("x", lambda *_: True), None, "") is None
    assert gpu_api.deviation(gpu_api.Call("x", lambda *_: False), None, "") is not None
    assert len({call.name for call in gpu_api.CALLS}) == len(gpu_api.CALLS)


# the libraries below torch, played by libraries of C: the calls through ctypes are real

HIP = """
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
typedef struct { const char *source; } program;
static const char CODE[] = "code of saxpy";
int hiprtcCreateProgram(void **p, const char *source, const char *name, int n,
                        const char **headers, const char **names) {
    program *made = malloc(sizeof *made); made->source = source; *p = made;
    return n != 0 || headers || names || strcmp(name, "saxpy.cu");
}
int hiprtcCompileProgram(void *p, int n, const char **options) {
    return COMPILES ? strstr(((program *)p)->source, "saxpy") == 0 || n != 0 : 6;
}
int hiprtcGetProgramLogSize(void *p, size_t *size) { *size = 14; return 0; }
int hiprtcGetProgramLog(void *p, char *log) { memcpy(log, "error: no gfx", 14); return 0; }
int hiprtcGetCodeSize(void *p, size_t *size) { *size = sizeof CODE; return 0; }
int hiprtcGetCode(void *p, char *code) { memcpy(code, CODE, sizeof CODE); return 0; }
int hipInit(unsigned flags) { return flags != 0; }
int hipGetDeviceCount(int *count) { *count = DEVICES; return DEVICES ? 0 : 100; }
int hipModuleLoadData(void **module, const void *code) {
    *module = malloc(8); return strcmp(code, CODE);
}
int hipModuleGetFunction(void **function, void *module, const char *name) {
    *function = module; return strcmp(name, "saxpy");
}
int hipMalloc(void **place, size_t size) { *place = malloc(size); return *place == 0; }
int hipMemcpyHtoD(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
int hipMemcpyDtoH(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
int hipDeviceSynchronize(void) { return 0; }
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void *stream,
                          void **params, void **extra) {
    float a = *(float *)params[0], *x = *(float **)params[1], *y = *(float **)params[2];
    int n = *(int *)params[3];
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || stream || extra) return 1;
    for (unsigned i = 0; i < gx * bx; i++)
        if ((int)i < n - MISSED) y[i] = a * x[i] + y[i];
    return 0;
}
int hsa_init(void) { return 0; }
int hsa_shut_down(void) { return 0; }
int hsa_agent_get_info(uint64_t agent, int what, void *value) {
    if (what != 17) return 1;
    *(uint32_t *)value = agent != 0x7f0000000000; return 0;
}
int hsa_iterate_agents(int (*visit)(uint64_t, void *), void *data) {
    for (uint64_t agent = 0; agent < 3; agent++)
        if (visit(0x7f0000000000 + agent, data)) return 1;
    return 0;
}
"""


def played(folder: Path, *, compiles: int = 1, devices: int = 2, missed: int = 0) -> None:
    """Lay a torch for HIP whose libraries are a stand-in of C beside it."""
    lib = folder / "torch/lib"
    lib.mkdir(parents=True)
    (folder / "torch/__init__.py").write_text("raise RuntimeError('it was imported')\n")
    (folder / "torch/version.py").write_text("hip = '6.2.41133'\n")
    source = folder / "hip.c"
    source.write_text(HIP)
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None
    values = [f"-DCOMPILES={compiles}", f"-DDEVICES={devices}", f"-DMISSED={missed}"]
    target = lib / "libamdhip64.so"
    words = [compiler, "-shared", "-fPIC", "-w", *values, "-o", str(target), str(source)]
    subprocess.run(words, check=True, timeout=60)
    for name in ("libhiprtc.so", "libhsa-runtime64.so.1"):
        shutil.copy(target, lib / name)


def saxpy(folder: Path, monkeypatch: pytest.MonkeyPatch, **faults: int) -> Any:
    played(folder, **faults)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("rocm_torch_selftest.checks.gpu.KFD", "dev/null")
    return gpu_kernel.run(Context(None, folder, lambda _: None))


def test_a_kernel_is_compiled_loaded_and_run_without_importing_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = saxpy(tmp_path, monkeypatch)
    assert found.status == "pass", found.detail
    assert "torch" not in sys.modules


def test_a_kernel_with_a_wrong_result_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = saxpy(tmp_path, monkeypatch, missed=5)
    assert found.status == "fail"
    assert found.data["wrong"] in (4, 5)  # 3 x + 1 is 1 where x is 0


def test_a_kernel_that_does_not_compile_names_what_the_compiler_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = saxpy(tmp_path, monkeypatch, compiles=0)
    assert found.status == "fail"
    assert "hiprtcCompileProgram returned 6: error: no gfx" in found.detail


def test_agents_and_devices_are_counted_below_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(tmp_path, devices=0)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert gpu_libraries.hsa_gpus() == 2
    assert gpu_libraries.hip_devices() == 0


def test_a_library_that_is_nowhere_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(gpu_libraries.LibraryError, match=r"libnowhere\.so\.1 does not load"):
        gpu_libraries.load(["libnowhere.so.1"])
    with pytest.raises(gpu_libraries.LibraryError, match="no_such is not in the library"):
        gpu_libraries.ask(ctypes.CDLL(None), "no_such")
