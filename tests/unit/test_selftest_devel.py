"""The checks of the flavours devel and opencl, with stubs where the compiler would be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from rocm_torch_selftest.cell import Cell
from rocm_torch_selftest.checks import hipify, opencl
from rocm_torch_selftest.context import Context, Ran
from rocm_torch_selftest.outcome import CheckFailedError

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = ("gfx90a", "gfx1100")
PORTED = hipify.CUDA_SOURCE.replace("cuda_runtime", "hip/hip_runtime").replace("cuda", "hip")
OBJECT = "hipv4-amdgcn-amd-amdhsa--gfx90a hipv4-amdgcn-amd-amdhsa--gfx1100"


def context(folder: Path, **changes: object) -> Context:
    values: dict[str, object] = {
        "id": "cpu-torch2.6.0-py313-debian13-devel",
        "python": "3.13",
        "torch_version": "2.6.0",
        "backend": "cpu",
        "hip_version": None,
        "contents": ("hipcc", "hipify-perl"),
        "pip_check_known": (),
        "gfx": TARGETS,
    }
    return Context(Cell(**{**values, **changes}), folder, lambda _: None)  # type: ignore[arg-type]


def stubs(folder: Path, monkeypatch: pytest.MonkeyPatch, *, ported: str, hipcc: str) -> None:
    """Put a hipify-perl that prints ``ported`` and a hipcc of shell words first on PATH."""
    (folder / "ported").write_text(ported)
    for name, text in (("hipify-perl", f"cat {folder}/ported"), ("hipcc", hipcc)):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def writing(text: str) -> str:
    """Return a hipcc that writes ``text`` to the file after -o."""
    return f'while [ "$1" != -o ]; do shift; done; printf "%s" "{text}" >"$2"'


def test_a_program_that_is_ported_and_compiled_for_each_target_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs(tmp_path, monkeypatch, ported=PORTED, hipcc=writing(OBJECT))
    found = hipify.run(context(tmp_path))
    assert found.status == "pass"
    assert found.data["targets"] == list(TARGETS)


def test_a_target_without_code_in_the_object_fails_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs(tmp_path, monkeypatch, ported=PORTED, hipcc=writing(OBJECT.split()[0]))
    with pytest.raises(CheckFailedError, match="made no code for gfx1100"):
        hipify.run(context(tmp_path))


def test_a_target_is_not_found_in_the_name_of_a_longer_one() -> None:
    with pytest.raises(CheckFailedError, match="gfx90a"):
        hipify.judge(b"amdgcn-amd-amdhsa--gfx90ab", ["gfx90a"])


def test_a_compressed_bundle_shows_no_names_and_passes() -> None:
    hipify.judge(b"\x00CCOB\x03\x00", TARGETS)


def test_what_is_left_of_cuda_fails_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ported = PORTED.replace("hipMalloc(&b", "cudaMalloc(&b")
    stubs(tmp_path, monkeypatch, ported=ported, hipcc=writing(OBJECT))
    with pytest.raises(CheckFailedError, match="cudaMalloc is left"):
        hipify.run(context(tmp_path))


def test_a_compiler_that_refuses_a_target_is_told_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "echo 'warning: x' >&2; echo 'clang: error: invalid target ID' >&2; exit 1"
    stubs(tmp_path, monkeypatch, ported=PORTED, hipcc=words)
    with pytest.raises(CheckFailedError, match="invalid target ID"):
        hipify.run(context(tmp_path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"contents": ("gcc",)}, "hipcc and hipify-perl"),
        ({"contents": ("hipcc",)}, "does not promise hipify-perl"),
        ({"gfx": ()}, "no GPU targets"),
    ],
)
def test_an_image_that_promises_less_has_nothing_to_try(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    found = hipify.run(context(tmp_path, **changes))
    assert (found.status, words in found.detail) == ("not_applicable", True)


# What the programs print: Debian 13's clinfo 3.0.25 without a driver, with ROCm's on a machine
# without a GPU, with PoCL; AMD's own program of that name has a colon after the words.
NO_DRIVER = "Number of platforms                               0\n\nICD loader properties\n"
ROCM = """\
Number of platforms                               1
  Platform Name                                   AMD Accelerated Parallel Processing
  Platform Vendor                                 Advanced Micro Devices, Inc.

  Platform Name                                   AMD Accelerated Parallel Processing
Number of devices                                 0
"""
POCL = """\
Number of platforms                               1
  Platform Name                                   Portable Computing Language

  Platform Name                                   Portable Computing Language
Number of devices                                 1
  Device Name                                     cpu-skylake-avx512
    Max number of sub-devices                     2
"""
AMD = """\
Number of platforms:\t\t\t\t 1
  Platform Profile:\t\t\t\t FULL_PROFILE
  Platform Name:\t\t\t\t AMD Accelerated Parallel Processing

  Platform Name:\t\t\t\t AMD Accelerated Parallel Processing
Number of devices:\t\t\t\t 2
"""
DRIVER = ("libamdocl64.so",)


def said(text: str, status: int = 0) -> Ran:
    return Ran(status, text, "")


@pytest.mark.parametrize(
    ("text", "platforms"),
    [
        (NO_DRIVER, []),
        (ROCM, [("AMD Accelerated Parallel Processing", 0)]),
        (POCL, [("Portable Computing Language", 1)]),
        (AMD, [("AMD Accelerated Parallel Processing", 2)]),
    ],
)
def test_what_clinfo_prints_is_understood(text: str, platforms: list[tuple[str, int]]) -> None:
    found = opencl.parse(text)
    assert found is not None
    assert [(one["name"], one["devices"]) for one in found] == platforms


def test_without_a_gpu_a_registered_driver_passes_and_none_fails() -> None:
    assert opencl.judge(said(ROCM), drivers=DRIVER, gpu=False).status == "pass"
    assert opencl.judge(said(NO_DRIVER), drivers=DRIVER, gpu=False).status == "pass"
    assert opencl.judge(said(NO_DRIVER), drivers=(), gpu=False).status == "fail"


def test_with_a_gpu_some_platform_must_have_a_device() -> None:
    assert opencl.judge(said(ROCM), drivers=DRIVER, gpu=True).status == "fail"
    assert opencl.judge(said(AMD), drivers=DRIVER, gpu=True).status == "pass"


def test_amds_clinfo_without_platforms_is_an_answer_and_other_words_are_none() -> None:
    none = Ran(1, "", "ERROR: clGetPlatformIDs(-1001)\n")
    assert opencl.judge(none, drivers=DRIVER, gpu=False).status == "pass"
    assert opencl.judge(none, drivers=DRIVER, gpu=True).status == "fail"
    lost = Ran(127, "", "clinfo: error while loading shared libraries: libOpenCL.so.1\n")
    found = opencl.judge(lost, drivers=DRIVER, gpu=False)
    assert (found.status, "libOpenCL.so.1" in found.detail) == ("fail", True)


def test_the_registered_drivers_are_read(tmp_path: Path) -> None:
    (tmp_path / "amdocl64.icd").write_text("libamdocl64.so\n")
    (tmp_path / "readme").write_text("no driver")
    assert opencl.registered(tmp_path) == DRIVER
