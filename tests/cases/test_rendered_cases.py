"""Field cases that a rendered Dockerfile cannot have; each id is the report's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder.errors import RefusedError
from builder.matrix.cells import Base, Cell, Expected, Interpreter, Repository
from builder.render.context import Renderer

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "images/rootfs/usr/lib/rocm-torch"
RENDERER = Renderer(
    {
        path.relative_to(ROOT / "templates").as_posix(): path.read_text()
        for path in (ROOT / "templates").rglob("*.j2")
    }
)


def rendered(*packages: str) -> str:
    """Return the Dockerfile of a devel cell with AMD's repository and these packages of it."""
    cell = Cell(
        id="rocm6.2.4-torch2.7.1-py311-ubuntu22.04-devel",
        lane="legacy",
        distro="ubuntu22.04",
        rocm="6.2.4",
        torch="2.7.1",
        python="3.11",
        flavour="devel",
        base=Base("wheel", "docker.io/library/ubuntu:22.04"),
        expected=Expected("2.7.1+rocm6.2.4", "hip"),
        gfx=("gfx942", "gfx1100"),
        packages=("ca-certificates",),
        repositories=(
            Repository(
                name="amd-rocm",
                uri="https://repo.radeon.com/rocm/apt/6.2.4",
                key_url="https://repo.radeon.com/rocm/rocm.gpg.key",
                key_fingerprint="CA8BB4727A47B4D09B4EE8969386B48A1A693C5C",
                packages=packages or ("hipcc",),
                suites=("jammy",),
                components=("main",),
                origin="repo.radeon.com",
            ),
        ),
        interpreter=Interpreter("uv"),
    )
    return RENDERER.render(cell, image="ourorg/rocm-torch")["Dockerfile"].decode()


def no_other_index_beside_torch() -> None:
    text = rendered()
    assert "--no-index" in text
    assert not re.search(r"--(extra-)?index-url", text)


def the_pin_is_written_before_anything_is_installed_from_there() -> None:
    text = rendered("hipcc")
    pin = "'Package: *' \\\n      'Pin: release o=repo.radeon.com' \\\n      'Pin-Priority: 600'"
    assert 0 < text.index(pin) < text.index("      hipcc")


def keys_are_named_by_the_list_and_not_given_to_apt_key() -> None:
    text = rendered()
    assert "apt-key" not in text
    assert "'Signed-By: /etc/apt/keyrings/amd-rocm.asc'" in text


def a_key_that_is_gone_stops_the_build_by_address(tmp_path: Path) -> None:
    (tmp_path / "curl").write_text("#!/bin/sh\necho 'curl: (22) error: 404' >&2\nexit 22\n")
    (tmp_path / "curl").chmod(0o755)
    url = "https://repo.radeon.com/rocm/rocm.gpg.key"
    ran = subprocess.run(
        [SCRIPTS / "fetch-key", url, "A" * 40, tmp_path / "key"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode != 0
    assert "404" in ran.stderr
    assert url in ran.stderr


def torch_is_in_an_environment_of_its_own() -> None:
    text = rendered()
    assert "--break-system-packages" not in text
    assert "EXTERNALLY-MANAGED" not in text
    assert "uv venv" in text


def the_conda_environment_that_has_torch_is_found(tmp_path: Path) -> None:
    base, env = tmp_path / "conda", tmp_path / "conda/envs/py_3.10"
    for folder in (base, env):
        argv = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(argv, check=True, timeout=120)
    (site,) = env.glob("lib/python3*/site-packages")
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text("__version__ = '2.7.1+rocm6.4'\n")
    candidates = ["/gone/python3", str(base / "bin/python"), str(env / "bin/python")]
    said = subprocess.check_output([str(SCRIPTS / "find-python"), *candidates], text=True)
    assert said == f"{env}/bin/python\n"


def the_driver_is_refused_and_the_host_is_named() -> None:
    for name in ("amdgpu-dkms", "rocm-dkms", "linux-headers-6.8.0-40-generic"):
        with pytest.raises(RefusedError) as caught:
            rendered(name, "rocm")
        assert "--no-dkms" in caught.value.problems[0].what
        assert "host" in caught.value.problems[0].what


def rocm_and_torch_are_layers_of_their_own() -> None:
    layers = rendered("rocm").split("\nRUN ")
    (rocm,) = [number for number, layer in enumerate(layers) if "      rocm; " in layer]
    (torch,) = [number for number, layer in enumerate(layers) if "pip sync" in layer]
    assert rocm != torch


def sources_are_compiled_for_the_targets_of_the_matrix() -> None:
    text = rendered()
    for name in ("PYTORCH_ROCM_ARCH", "GPU_ARCHS", "GPU_TARGETS", "HIP_ARCHITECTURES"):
        assert f'{name}="gfx942;gfx1100"' in text


def nothing_depends_on_the_library_path() -> None:
    assert "LD_LIBRARY_PATH" not in rendered()


CASES: dict[str, Callable[..., None]] = {
    "g2-01-extra-index": no_other_index_beside_torch,
    "g2-07-apt-pin-missing": the_pin_is_written_before_anything_is_installed_from_there,
    "g2-08-apt-key": keys_are_named_by_the_list_and_not_given_to_apt_key,
    "g2-09-key-404": a_key_that_is_gone_stops_the_build_by_address,
    "g2-13-pep668": torch_is_in_an_environment_of_its_own,
    "g2-14-conda-env": the_conda_environment_that_has_torch_is_found,
    "g2-18-dkms-in-image": the_driver_is_refused_and_the_host_is_named,
    "g2-20-layer-limit": rocm_and_torch_are_layers_of_their_own,
    "g2-21-gpuless-builder": sources_are_compiled_for_the_targets_of_the_matrix,
    "g2-24-ld-library-path": nothing_depends_on_the_library_path,
}


@pytest.mark.parametrize("case", CASES)
def test_the_reported_fault_cannot_be_rendered(case: str, tmp_path: Path) -> None:
    check = CASES[case]
    check(**({"tmp_path": tmp_path} if check.__code__.co_argcount else {}))
