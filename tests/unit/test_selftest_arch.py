"""Targets of GPUs: their names, what code serves them, and how files tell it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import rocm_torch_selftest
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import bundle, compressed, fat, library, rocblas, torch_package
from rocm_torch_selftest import kfd
from rocm_torch_selftest.arch import targets
from rocm_torch_selftest.arch.code_objects import UnreadableBundleError, bundle_targets
from rocm_torch_selftest.arch.files import Offer, blas_offers, read_torch, torch_offer
from rocm_torch_selftest.arch.serving import judge
from rocm_torch_selftest.checks import gpu_arch

SELFTEST = Path(rocm_torch_selftest.__file__).parent.parent
NAMES = ("gfx90a", "gfx942", "gfx1030", "gfx1100", *targets.GENERIC)
FEATURES = ("", ":xnack-", ":sramecc+:xnack-")


# files of kernels


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("method", [0, 1])
def test_compressed_bundles_are_read_like_plain_ones(
    tmp_path: Path, version: int, method: int
) -> None:
    file = tmp_path / "lib.so"
    names = ("gfx90a:sramecc+:xnack-", "gfx1100")
    file.write_bytes(fat(*(compressed(bundle(*names), version, method) for _ in range(3))))
    assert bundle_targets(file) == ("gfx1100", "gfx90a")


def test_kernels_for_a_few_targets_do_not_make_a_library_serve_them(tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    file.write_bytes(fat(bundle("gfx90a", "gfx942"), bundle("gfx90a"), bundle("gfx90a")))
    assert bundle_targets(file) == ("gfx90a",)


def test_bundles_outside_of_the_section_of_kernels_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    file.write_bytes(library((".rodata", bundle("gfx942")), (".hip_fatbin", bundle("gfx90a"))))
    assert bundle_targets(file) == ("gfx90a",)


def test_a_method_of_compression_that_is_not_known_is_told(tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    file.write_bytes(fat(b"CCOB" + struct.pack("<HHIIQ", 2, 9, 99, 99, 7) + bytes(80)))
    with pytest.raises(UnreadableBundleError, match="method 9"):
        bundle_targets(file)


@given(content=st.binary(max_size=300), cut=st.integers(0, 400))
def test_damaged_files_give_an_answer_or_a_known_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cut: int
) -> None:
    file = tmp_path_factory.mktemp("damaged") / "lib.so"
    file.write_bytes(bundle("gfx90a")[:cut] + content)
    try:
        found = bundle_targets(file)
    except UnreadableBundleError:
        return
    assert set(found) <= {"gfx90a"}


# names


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("TensileLibrary_Type_HH_gfx90a.co", "gfx90a"),
        ("Kernels.so-000-gfx90a-xnack+.hsaco", "gfx90a"),
        ("Kernels.so-000-gfx90a-xnack-.hsaco", "gfx90a"),
        ("extop_gfx942.co", "gfx942"),
        ("TensileLibrary.dat", None),
        ("amd-gfx11xx", "gfx11xx"),
        ("blas_lib_gfx1151.kpack", "gfx1151"),
        ("kernels_gfx9-4-generic.co", "gfx9-4-generic"),
    ],
)
def test_the_target_is_read_from_the_name_of_a_kernel_file(name: str, target: str | None) -> None:
    assert targets.in_file_name(name) == target


@pytest.mark.parametrize(
    ("offered", "target", "served"),
    [
        ("gfx90a:sramecc+:xnack-", "gfx90a", True),
        ("gfx90a", "gfx90a:xnack+", True),
        ("gfx11-generic", "gfx1103", True),
        ("gfx11-generic", "gfx1201", False),
        ("gfx9-generic", "gfx90a", False),
        ("gfx1100", "gfx1102", False),
        ("gfx11xx", "gfx1102", True),
        ("gfx115x", "gfx1102", False),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("compute_80", "sm_90", True),
        ("sm_90a", "sm_90", True),
        ("sm_100a", "sm_103", False),
        ("sm_90", "gfx90a", False),
    ],
)
def test_what_code_runs_on_which_gpu(offered: str, target: str, served: bool) -> None:
    assert targets.serves(offered, target) is served


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(FEATURES))),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(FEATURES))),
)
def test_the_intersection_serves_what_both_sides_serve(
    first: list[tuple[str, str]], second: list[tuple[str, str]]
) -> None:
    left, right = (["".join(pair) for pair in pairs] for pairs in (first, second))
    both = targets.in_both(left, right)
    assert both == targets.in_both(right, left)
    every = {name for family in targets.GENERIC.values() for name in family}
    for name in every | {"gfx90a", "gfx942"}:
        wanted = bool(targets.served_by(left, name)) and bool(targets.served_by(right, name))
        assert bool(targets.served_by(both, name)) is wanted


def test_the_kernels_topology_names_each_gpu_by_its_node(tmp_path: Path) -> None:
    for node, version in {"0": 0, "1": 110003, "2": 90010, "10": 90402}.items():
        (tmp_path / node).mkdir()
        text = f"cpu_cores_count 16\ngfx_target_version {version}\nvendor_id 4098\n"
        (tmp_path / node / "properties").write_text(text)
    (tmp_path / "11").mkdir()  # a GPU that this container was not given
    assert kfd.gpu_targets(tmp_path) == {1: "gfx1103", 2: "gfx90a", 10: "gfx942"}
    assert kfd.gpu_targets(tmp_path / "none") == {}
    assert kfd.override_target("10.3.0") == "gfx1030"
    assert kfd.override_target("gfx1030") is None


# the answer


def offers(torch: tuple[str, ...], blas: tuple[str, ...], *more: Offer) -> list[Offer]:
    return [Offer("torch", torch, "test"), Offer("rocblas", blas, "test"), *more]


def test_a_target_of_torch_without_kernels_of_rocblas_is_not_served() -> None:
    found = judge("gfx906", "hip", offers(("gfx906", "gfx90a"), ("gfx90a", "gfx1100")))
    assert (found.served, found.code) == (False, "ARCH_NOT_IN_BLAS")
    assert found.targets == ("gfx90a",)


def test_no_kernels_of_hipblaslt_are_a_note_and_no_failure() -> None:
    plain = offers(("gfx1030",), ("gfx1030",), Offer("hipblaslt", ("gfx942",), "test"))
    found = judge("gfx1030", "hip", plain)
    assert found.served is True
    assert "hipBLASLt" in found.notes[0]


def test_what_the_files_do_not_tell_is_neither_yes_nor_no() -> None:
    assert judge("gfx90a", "hip", offers((), ("gfx90a",))).served is None
    assert judge("gfx90a", "hip", offers(("gfx90a",), ())).served is None


def test_only_torchs_own_libraries_make_its_targets(tmp_path: Path) -> None:
    torch = read_torch(torch_package(tmp_path, "gfx90a:xnack-", "gfx1100"))
    rocblas(torch.folder, "gfx90a", "gfx1030")
    assert (torch.backend, torch.version) == ("hip", "2.7.1+rocm6.2.4")
    assert torch_offer(torch).targets == ("gfx1100", "gfx90a")
    blas = {offer.library: offer.targets for offer in blas_offers(torch, system=())}
    assert blas == {"rocblas": ("gfx1030", "gfx90a"), "hipblaslt": ()}


def test_the_names_of_kernel_archives_tell_where_libraries_have_no_code(tmp_path: Path) -> None:
    torch = read_torch(torch_package(tmp_path))
    (tmp_path / "torch_device_gfx942-2.10.0.dist-info").mkdir()
    assert torch_offer(torch).targets == ("gfx942",)


def test_the_debian_layout_of_rocblas_has_a_version_in_its_path(tmp_path: Path) -> None:
    torch = read_torch(torch_package(tmp_path, "gfx90a"))
    folder = tmp_path / "system/rocblas/2.47.0/library"
    folder.mkdir(parents=True)
    (folder / "TensileLibrary_gfx803.co").write_bytes(b"")
    found = blas_offers(torch, system=(str(tmp_path / "system"),))
    assert found[0].targets == ("gfx803",)


def arch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rocm_torch_selftest", "arch", *arguments],
        env={"PYTHONPATH": f"{folder}:{SELFTEST}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_arch_answers_from_files_and_does_not_import_torch(tmp_path: Path) -> None:
    rocblas(
        torch_package(tmp_path, "gfx90a:sramecc+", "gfx11-generic", "gfx906"), "gfx90a", "gfx1103"
    )
    served = arch(tmp_path, "--target", "gfx1103", "--json")
    document = json.loads(served.stdout)
    assert (served.returncode, document["served"]) == (0, True)
    assert document["schema"] == "rocm-torch/arch/v1"
    assert document["targets"] == ["gfx1103", "gfx90a"]
    refused = arch(tmp_path, "--target", "gfx906")
    assert refused.returncode == 2
    assert "rocBLAS has no kernels" in refused.stdout
    assert arch(tmp_path, "--target", "gfx1201").returncode == 2


@pytest.mark.parametrize("arguments", [(), ("--target", "radeon"), ("--target",)])
def test_a_call_of_arch_without_a_target_is_exit_64(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    assert arch(tmp_path, *arguments).returncode == 64


def test_arch_without_any_torch_is_exit_1(tmp_path: Path) -> None:
    found = arch(tmp_path, "--target", "gfx90a")
    assert found.returncode == 1
    assert "Traceback" not in found.stderr


# the check


def test_an_override_is_judged_by_what_it_claims_and_is_named() -> None:
    found = gpu_arch.verdict(
        ["gfx1103"],
        "hip",
        offers(("gfx1030",), ("gfx1030",)),
        {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"},
    )
    assert found.status == "pass"
    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0 makes HIP take gfx1103 for gfx1030" in found.detail


def test_one_gpu_of_two_that_is_not_served_fails_the_check() -> None:
    plain = offers(("gfx90a",), ("gfx90a",))
    found = gpu_arch.verdict(["gfx90a", "gfx1100"], "hip", plain, {})
    assert (found.status, found.data["code"]) == ("fail", "ARCH_NOT_IN_TORCH")


def test_a_machine_whose_gpus_say_no_target_is_a_skip() -> None:
    assert gpu_arch.verdict([], "hip", offers(("gfx90a",), ("gfx90a",)), {}).status == "skip"
