"""Field cases of groups G2 and G3 that the self-test finds in the installed set of an image."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocm_torch_selftest.checks import clean_environment, distributions, numpy_exchange
from rocm_torch_selftest.context import Context, Ran
from rocm_torch_selftest.installed import Installed, chain_to, needed, read_installed

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("torch", "torchvision", "triton", "numpy", "vllm", "nvidia-cudnn-cu12")


def one(name: str, version: str, *requires: str, **more: object) -> Installed:
    modules = frozenset({"triton"}) if "triton" in name else frozenset()
    pins = {
        other: pin for line in requires for other, pin in needed([line]).items() if pin is not None
    }
    return Installed(
        name,
        version,
        frozenset(needed(requires)),
        pins,
        modules,
        **more,  # type: ignore[arg-type]
    )


def judged(
    *installed: Installed, torch: str = "2.9.1+rocm7.2.1", gfx: tuple[str, ...] = ()
) -> tuple[str, str, list[str]]:
    found = distributions.judge(installed, backend="hip", torch=torch, gfx=gfx)
    return found.status, found.detail, [each["code"] for each in found.data.get("findings", ())]


def test_a_rocm_image_with_its_own_packages_passes() -> None:
    status, _, _ = judged(
        one("torch", "2.9.1+rocm7.2.1.lw.git351ff442", "triton==3.5.1+rocm7.2.1"),
        one("torchvision", "0.24.0+rocm7.2.1.gitb919bd0c"),
        one("triton", "3.5.1+rocm7.2.1"),
        one("nvidia-ml-py", "13.580.82"),
    )
    assert status == "pass"


@pytest.mark.parametrize("case_id", ["g2-03-transitive-nvidia"])
def test_the_chain_that_brought_cuda_packages_is_told(case_id: str) -> None:
    status, detail, codes = judged(
        one("vllm", "0.11.0", "torch==2.9.1"),
        one("torch", "2.9.1", "nvidia-cudnn-cu12==9.10.2.21"),
        one("nvidia-cudnn-cu12", "9.10.2.21"),
    )
    assert status == "fail"
    assert set(codes) == {"ROCM_TORCH_REPLACED"}
    assert "vllm 0.11.0 -> torch 2.9.1 -> nvidia-cudnn-cu12 9.10.2.21" in detail


@pytest.mark.parametrize("case_id", ["g2-01-extra-index", "g2-02-requirements-torchvision"])
def test_another_torch_than_the_cell_expects_is_told_with_what_brought_it(case_id: str) -> None:
    status, detail, codes = judged(
        one("torch", "2.10.0"), one("torchvision", "0.25.0", "torch==2.10.0")
    )
    assert status == "fail"
    assert codes == ["ROCM_TORCH_REPLACED"]
    for word in ("2.10.0", "2.9.1+rocm7.2.1", "torchvision 0.25.0 -> torch 2.10.0"):
        assert word in detail


@pytest.mark.parametrize("case_id", ["g2-15-triton-overwritten"])
def test_two_owners_of_the_module_triton_are_told(case_id: str) -> None:
    _, detail, codes = judged(
        one("torch", "2.9.1+rocm7.2.1", "triton-rocm==3.6.0"),
        one("triton-rocm", "3.6.0"),
        one("triton", "3.7.0"),
    )
    assert codes == ["TRITON_CONFLICT"]
    assert "triton 3.7.0" in detail


def test_another_triton_than_torch_requires_is_told() -> None:
    _, detail, codes = judged(
        one("torch", "2.9.1+rocm7.2.1", "triton-rocm (==3.6.0) ; platform_system == 'Linux'"),
        one("triton-rocm", "3.7.0"),
    )
    assert codes == ["TRITON_CONFLICT"]
    assert "3.6.0" in detail
    assert "3.7.0" in detail


@pytest.mark.parametrize("case_id", ["g3-02-latest-broken-pair"])
@pytest.mark.parametrize("name", ["torchvision", "torchaudio"])
@pytest.mark.parametrize(
    ("torch", "other", "agree"),
    [
        ("2.9.1+rocm7.2.1", "0.24.1", False),
        ("2.9.1+rocm7.2.1", "0.24.1+cu128", False),
        ("2.9.1+rocm7.2.1", "0.24.1+rocm7.2", False),
        ("2.9.1+rocm7.2.1", "0.24.1+rocm7.2.1.gitb919bd0c", True),
        ("2.9.1+gitb2fb688", "0.24.1", False),
        ("2.9.1+gitb2fb688", "0.24.1+git59a3e1f", True),
    ],
)
def test_a_companion_of_another_build_is_told(
    case_id: str, name: str, torch: str, other: str, agree: bool
) -> None:
    _, detail, codes = judged(one("torch", torch), one(name, other), torch=torch)
    assert codes == ([] if agree else ["TORCHVISION_MISMATCH"])
    assert agree or f"{name} {other}" in detail


@pytest.mark.parametrize("case_id", ["g2-22-device-wheel-missing"])
@pytest.mark.parametrize("local", ["rocm10.0.0", "rocm7.14.0"])
def test_a_target_without_device_code_is_told(case_id: str, local: str) -> None:
    torch = f"2.13.0+{local}"
    device = one("amd-torch-device-gfx942", torch)
    _, detail, codes = judged(one("torch", torch), device, torch=torch, gfx=("gfx942", "gfx1201"))
    assert codes == ["DEVICE_CODE_MISSING"]
    assert "gfx1201" in detail
    assert "gfx942" not in detail
    bare = one("torch", torch, extras=frozenset({"device-gfx942"}))
    assert judged(bare, torch=torch, gfx=("gfx942",))[2] == ["DEVICE_CODE_MISSING"]
    assert judged(one("torch", torch), torch=torch, gfx=("gfx942",))[2] == []


def test_device_code_of_another_torch_is_told() -> None:
    torch = "2.13.0+rocm10.0.0"
    other = one("amd-torch-device-gfx942", "2.12.0+rocm10.0.0")
    assert judged(one("torch", torch), other, torch=torch, gfx=("gfx942",))[2] == [
        "DEVICE_CODE_MISSING"
    ]


@pytest.mark.parametrize("case_id", ["g2-16-numpy-abi"])
def test_a_warning_of_numpy_fails_the_exchange_although_the_process_ended_well(
    case_id: str,
) -> None:
    said = Ran(0, "2.4.0+rocm6.1 2.1.0\n", "UserWarning: Failed to initialize NumPy: _ARRAY_API")
    found = numpy_exchange.judge(said)
    assert (found.status, found.data["code"]) == ("fail", "NUMPY_ABI")
    assert numpy_exchange.judge(Ran(0, "2.4.0 2.1.0\n", "")).status == "pass"
    assert numpy_exchange.judge(Ran(1, "", "RuntimeError: Numpy is not available")).status == "fail"


@pytest.mark.parametrize("case_id", ["g2-24-ld-library-path"])
def test_an_import_that_needs_the_environment_is_told(case_id: str) -> None:
    stderr = "ImportError: librocm_sysdeps_liblzma.so.5: cannot open shared object file"
    found = clean_environment.judge(Ran(1, "", stderr))
    assert found.status == "fail"
    assert found.data["code"] == "NEEDS_LD_LIBRARY_PATH"
    assert "librocm_sysdeps_liblzma.so.5" in found.detail


def test_a_library_that_only_the_environment_finds_fails_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '2.9.1'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    empty = tmp_path / "empty"
    empty.mkdir()
    found = clean_environment.run(Context(None, empty, lambda _: None))
    assert found.status == "fail"
    assert found.data["code"] == "NEEDS_LD_LIBRARY_PATH"


def test_what_this_python_has_is_read_with_names_versions_and_needs() -> None:
    found = {each.name: each for each in read_installed(("pytest", "builder"))}
    assert found["pytest"].version == pytest.__version__
    assert found["pytest"].modules == {"pytest"}
    assert "pluggy" in found["pytest"].requires
    assert "requests" not in found["pytest"].requires  # an extra's
    assert "pytest" not in {each.name for each in found.values() if "builder" in each.modules}


@given(
    needs=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20),
    name=st.sampled_from(NAMES),
)
def test_every_chain_ends_at_its_name_and_each_link_needs_the_next(
    needs: list[tuple[str, str]], name: str
) -> None:
    installed = [
        Installed(each, "1.0", frozenset(to for origin, to in needs if origin == each))
        for each in NAMES
    ]
    chain = chain_to(name, installed)
    assert chain[-1].name == name
    assert all(after.name in before.requires for before, after in pairwise(chain))
    assert len({each.name for each in chain}) == len(chain)
