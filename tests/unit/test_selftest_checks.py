from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from rocm_torch_selftest.cell import Cell, CellFileError, read_cell
from rocm_torch_selftest.checks import (
    contents,
    dataloader,
    environment,
    gpu,
    pip_check,
    shared_libraries,
    shells,
    user_and_caches,
    version,
)
from rocm_torch_selftest.context import Context, Ran, run_program
from rocm_torch_selftest.outcome import CheckFailedError

SYMPY = (
    'torch 2.6.0+debian has requirement sympy==1.13.1; python_version >= "3.9", '
    "but you have sympy 1.13.3."
)
CLEAN = "No broken requirements found.\n"


def cell(**changes: Any) -> Cell:
    values: dict[str, Any] = {
        "id": "cpu-torch2.6.0-py313-debian13",
        "python": "3.13",
        "torch_version": "2.6.0+debian",
        "backend": "cpu",
        "hip_version": None,
        "contents": ("gcc",),
        "pip_check_known": (SYMPY,),
    }
    return Cell(**{**values, **changes})


def context(tmp_path: Path, promised: Cell | None = None) -> Context:
    return Context(promised, tmp_path, lambda _: None)


# pip check


def test_known_findings_of_pip_check_pass_whatever_their_case_and_blanks() -> None:
    found = pip_check.judge(Ran(1, SYMPY.replace(" ", "  ").upper() + "\n", ""), [SYMPY])
    assert found.status == "pass"
    assert found.data["known_and_gone"] == []


def test_a_new_finding_of_pip_check_fails_and_only_it_is_named() -> None:
    new = "torch 2.6.0 requires numpy, which is not installed."
    found = pip_check.judge(Ran(1, f"{SYMPY}\n{new}\n", ""), [SYMPY])
    assert found.status == "fail"
    assert found.data["new"] == [new]


def test_another_version_in_a_known_finding_is_a_new_finding() -> None:
    found = pip_check.judge(Ran(1, SYMPY.replace("1.13.3", "1.14.0"), ""), [SYMPY])
    assert found.status == "fail"


def test_a_known_finding_that_is_gone_is_told_and_passes() -> None:
    found = pip_check.judge(Ran(0, CLEAN, ""), [SYMPY])
    assert found.status == "pass"
    assert found.data["known_and_gone"] == [SYMPY]


@pytest.mark.parametrize(
    "said",
    [
        Ran(1, "", "/usr/bin/python: No module named pip"),
        Ran(0, "", ""),
        Ran(2, SYMPY, ""),
        Ran(1, CLEAN, ""),
        Ran(0, SYMPY, ""),
        Ran(None, "", "no end within 50 s"),
        Ran(-9, CLEAN, ""),
    ],
)
def test_a_pip_check_that_gives_no_answer_fails(said: Ran) -> None:
    assert pip_check.judge(said, [SYMPY]).status == "fail"


# shared libraries

LDD = """\
\tlinux-vdso.so.1 (0x00007fff)
\tlibtorch.so.2.6 => /usr/lib/x86_64-linux-gnu/libtorch.so.2.6 (0x00007f10)
\tlibamdhip64.so.6 => not found
\tlibamdhip64.so.6 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f11)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f12)
./lib.so: /lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by ./lib.so)
"""


def test_ldd_output_yields_missing_libraries_and_missing_symbol_versions() -> None:
    links = shared_libraries.parse_ldd(LDD)
    assert links.found == 3
    assert links.missing == ("libamdhip64.so.6", "version GLIBCXX_3.4.32")


def test_ldd_output_of_something_that_is_no_library_yields_nothing() -> None:
    assert shared_libraries.parse_ldd("\tnot a dynamic executable\n").found == 0


def test_a_library_that_is_not_found_is_named_with_who_needs_it() -> None:
    found = shared_libraries.judge(2, 9, {"/t/libtorch_hip.so": ["librocblas.so.4"]}, frozenset())
    assert found.status == "fail"
    assert "libtorch_hip.so needs librocblas.so.4" in found.detail


def test_a_library_that_torch_loads_by_itself_is_not_missing() -> None:
    missing = {"/t/libtorch_hip.so": ["librocblas.so.4"]}
    found = shared_libraries.judge(2, 9, missing, frozenset({"librocblas.so.4"}))
    assert found.status == "pass"
    assert found.data["loaded_by_torch"] == ["librocblas.so.4"]


# version


def found_versions(**changes: str | None) -> dict[str, str | None]:
    return {"torch": "2.6.0+debian", "backend": "cpu", "hip": None, "python": "3.13", **changes}


def test_versions_as_expected_pass() -> None:
    assert version.compare(cell(), found_versions()).status == "pass"


@pytest.mark.parametrize(
    "change", [{"torch": "2.6.0"}, {"backend": "cuda"}, {"python": "3.1"}, {"python": "3.13t"}]
)
def test_each_version_that_differs_is_named(change: dict[str, str | None]) -> None:
    found = version.compare(cell(), found_versions(**change))
    assert found.status == "fail"
    for value in change.values():
        assert repr(value) in found.detail


def test_the_hip_version_is_compared_where_it_is_a_fact() -> None:
    rocm = cell(backend="hip", hip_version="6.2.41134")
    found = found_versions(backend="hip", hip="6.2.41133")
    assert version.compare(rocm, found).status == "fail"
    assert version.compare(cell(backend="hip"), found).status == "pass"


# shells


def test_one_python_with_torch_in_all_shells_passes() -> None:
    answers = {"bash -lc": ["/opt/venv/bin/python", "/x/torch/__init__.py"]}
    assert shells.judge(answers, "/opt/venv/bin/python").status == "pass"


@pytest.mark.parametrize(
    "answer",
    [["/usr/bin/python", "/x/torch"], ["/opt/venv/bin/python", None], "python: not found"],
)
def test_a_shell_with_another_python_without_torch_or_without_python_fails(answer: Any) -> None:
    found = shells.judge({"sh -c": answer}, "/opt/venv/bin/python")
    assert found.status == "fail"
    assert "sh -c" in found.detail


def test_an_image_without_any_shell_is_a_skip() -> None:
    assert shells.judge({}, "/usr/bin/python").status == "skip"


def test_what_a_profile_prints_does_not_hide_the_answer() -> None:
    assert shells.answer_of(Ran(0, 'welcome\n["/p", "/t"]\n', "")) == ["/p", "/t"]
    assert shells.answer_of(Ran(127, "", "sh: 1: python: not found\n")) == (
        "sh: 1: python: not found"
    )


# caches


def cache_environment(folder: Path) -> dict[str, str]:
    return {name: str(folder / name.lower()) for name in user_and_caches.CACHE_VARIABLES}


def private(tmp_path: Path, mode: int = 0o700) -> Path:
    # Below a directory that everybody may enter, so that only this one can be private.
    tmp_path.chmod(0o755)
    folder = tmp_path / "caches"
    folder.mkdir(mode=0o700)
    folder.chmod(mode)
    return folder


def test_caches_below_a_private_directory_pass(tmp_path: Path) -> None:
    environment = cache_environment(private(tmp_path))
    found = user_and_caches.judge(environment, os.getuid(), user_and_caches.who())
    assert found.status == "pass", found.detail


def test_a_cache_variable_that_is_not_set_fails_by_name(tmp_path: Path) -> None:
    environment = cache_environment(private(tmp_path))
    del environment["TRITON_CACHE_DIR"]
    found = user_and_caches.judge(environment, os.getuid(), user_and_caches.who())
    assert found.detail == "TRITON_CACHE_DIR is not set."


def test_a_cache_of_another_user_fails(tmp_path: Path) -> None:
    found = user_and_caches.problem_of(str(private(tmp_path)), os.getuid() + 1)
    assert found is not None
    assert "belongs to user" in found


def test_a_relative_cache_path_or_a_file_in_its_place_fails(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert "not an absolute path" in str(user_and_caches.problem_of("cache", os.getuid()))
    assert "no usable directory" in str(user_and_caches.problem_of(str(file), os.getuid()))


def test_a_cache_that_others_can_enter_fails() -> None:
    # pytest's own directories are private, so the open one stands elsewhere.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        problem = user_and_caches.problem_of(name, os.getuid())
    assert problem is not None
    assert "mode 0755" in problem


def test_caches_said_to_be_unavailable_fail_where_a_place_is_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = {**user_and_caches.who(), "home_writable": False}
    environment = {"ROCM_TORCH_CACHES": "unavailable"}
    monkeypatch.setattr(user_and_caches, "LAST_RESORTS", (tmp_path,))
    found = user_and_caches.judge(environment, os.getuid(), user)
    assert found.status == "fail"
    assert str(tmp_path) in found.detail
    monkeypatch.setattr(user_and_caches, "LAST_RESORTS", (tmp_path / "nowhere",))
    assert user_and_caches.judge(environment, os.getuid(), user).status == "pass"


# contents


def test_a_component_without_a_probe_is_an_error_of_the_self_test(tmp_path: Path) -> None:
    found = contents.run(context(tmp_path, cell(contents=("gcc", "flux-capacitor"))))
    assert found.status == "error"
    assert "flux-capacitor" in found.detail


def test_all_missing_components_are_named_at_once(tmp_path: Path) -> None:
    def gone(_: Context) -> str:
        raise CheckFailedError("it is not on PATH")

    probes = {"a": gone, "b": lambda _: "/bin/b", "c": gone}
    found = contents.run(context(tmp_path, cell(contents=("a", "b", "c"))), probes)
    assert found.status == "fail"
    assert found.data == {
        "found": {"b": "/bin/b"},
        "missing": {"a": "it is not on PATH", "c": "it is not on PATH"},
    }


def test_a_program_that_is_promised_and_not_on_path_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = contents.run(context(tmp_path, cell(contents=("rocm-smi", "gcc", "rocprof"))))
    assert sorted(found.data["missing"]) == ["gcc", "rocm-smi", "rocprof"]


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("echo 'ROCk module is NOT loaded, possibly no GPU devices'; exit 1", "pass"),
        ("echo 'ROCk module is loaded'; exit 0", "pass"),
        ("echo 'error while loading shared libraries' >&2; exit 127", "fail"),
        ("echo 'ROCk module is loaded'; kill -SEGV $$", "fail"),
    ],
)
def test_rocminfo_must_run_and_need_not_find_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, status: str
) -> None:
    program(tmp_path, "rocminfo", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = contents.run(context(tmp_path, cell(contents=("rocminfo",))))
    assert found.status == status, found.detail


def test_a_compiler_that_writes_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "gcc", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = contents.run(context(tmp_path, cell(contents=("gcc",))))
    assert found.status == "fail"


# dataloader


def test_dockers_default_shared_memory_is_enough_and_a_smaller_one_is_named_with_the_fix() -> None:
    assert dataloader.NEEDED_BYTES < 64 * 2**20
    found = dataloader.too_small(2**20, 2**19)
    assert found.status == "fail"
    assert found.data["code"] == "SHM_TOO_SMALL"
    assert "--shm-size" in found.detail
    assert "1.0 MiB" in found.detail


def test_a_missing_shared_memory_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match="--shm-size"):
        dataloader.shared_memory_bytes(tmp_path / "gone")


# GPU


def test_without_a_gpu_each_backend_gets_a_skip_with_its_reason(tmp_path: Path) -> None:
    for backend, words in (("cpu", "built for the CPU"), ("hip", "/dev/kfd"), ("cuda", "NVIDIA")):
        found = gpu.without_gpu(backend, tmp_path)
        assert found is not None
        assert found.status == "skip"
        assert words in found.detail


def test_a_kfd_that_cannot_be_opened_is_a_failure_and_no_skip(tmp_path: Path) -> None:
    (tmp_path / "dev/kfd").mkdir(
        parents=True
    )  # opening a directory for writing fails, for root too
    with pytest.raises(CheckFailedError, match="cannot be opened"):
        gpu.without_gpu("hip", tmp_path)


def test_a_kfd_that_opens_lets_the_check_go_on(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").write_text("")
    assert gpu.without_gpu("hip", tmp_path) is None


# environment


def test_the_pci_id_is_vendor_and_device_as_the_kernel_has_them(tmp_path: Path) -> None:
    device = tmp_path / "0000:c1:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x1002\n")
    (device / "device").write_text("0x74a1\n")
    assert environment.pci_id("0000:c1:00.0", tmp_path) == "1002:74a1"
    assert environment.pci_id("0000:c2:00.0", tmp_path) is None
    assert environment.pci_id(None, tmp_path) is None


def test_the_driver_version_is_amdgpus_or_else_nvidias(tmp_path: Path) -> None:
    assert environment.driver_version(tmp_path) is None
    nvidia = tmp_path / "proc/driver/nvidia/version"
    nvidia.parent.mkdir(parents=True)
    nvidia.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23\n")
    assert environment.driver_version(tmp_path) == "570.86.15"
    amdgpu = tmp_path / "sys/module/amdgpu"
    amdgpu.mkdir(parents=True)
    assert environment.driver_version(tmp_path) == "in-kernel"
    (amdgpu / "version").write_text("6.10.5\n")
    assert environment.driver_version(tmp_path) == "6.10.5"


# programs and the cell file


def test_a_program_always_gives_a_status(tmp_path: Path) -> None:
    assert run_program(["sh", "-c", "echo out; echo err >&2; exit 3"]) == Ran(3, "out\n", "err\n")
    assert run_program([str(tmp_path / "nowhere")]).status is None
    assert "no end within" in run_program(["sleep", "600"], limit_s=0.1).last_line


def test_a_program_that_leaves_its_output_open_does_not_make_us_wait() -> None:
    said = run_program(["sh", "-c", "(trap '' HUP; exec sleep 5) & echo done"], limit_s=4)
    assert said.stdout == "done\n"


def test_the_cell_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "cell.json"
    file.write_text(json.dumps(cell().to_json()))
    assert read_cell(file, {}) == cell()
    assert read_cell(None, {"ROCM_TORCH_CELL_FILE": str(file)}) == cell()


def test_a_cell_file_that_was_asked_for_and_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CellFileError, match="does not exist"):
        read_cell(tmp_path / "gone.json", {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "not a JSON object"),
        ("{}", "schema"),
        (json.dumps({**cell().to_json(), "expected": None}), "'expected'"),
        (json.dumps({**cell().to_json(), "python": 3.13}), "'python' is 3.13"),
    ],
)
def test_a_damaged_cell_file_is_refused_with_what_is_wrong(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "cell.json"
    file.write_text(text)
    with pytest.raises(CellFileError, match=words):
        read_cell(file, {})
