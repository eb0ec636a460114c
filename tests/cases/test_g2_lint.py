"""Field cases that a lint finds in what users write: snippets, Dockerfiles, requirements."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import ROOT
from told import check_told

from builder.cli.main import run
from builder.plan.lint import buildkit_features, instructions, lint

if TYPE_CHECKING:
    from pathlib import Path

    from builder.plan.lint import Builder

DOCKERFILES = [
    pytest.param(
        "RUN pip install --extra-index-url https://download.pytorch.org/whl/rocm6.4 torch"
        " torchvision\n",
        "TORCH_FROM_PYPI_RISK",
        ("--index-url", "torch, torchvision"),
        id="g2-01-extra-index",
    ),
    pytest.param(
        "RUN uv pip install --extra-index-url=https://x/rocm6.4 'torch>=2.9'\n",
        "TORCH_FROM_PYPI_RISK",
        ("torch>=2.9",),
        id="g2-01-extra-index-uv",
    ),
    pytest.param(
        "ENV PIP_EXTRA_INDEX_URL=https://x/rocm6.4\n",
        "TORCH_FROM_PYPI_RISK",
        ("PIP_EXTRA_INDEX_URL",),
        id="g2-01-extra-index-environment",
    ),
    pytest.param(
        'RUN ["python", "-m", "pip", "install", "torch"]\n',
        "TORCH_FROM_PYPI_RISK",
        ("without an index",),
        id="g2-01-no-index",
    ),
    pytest.param(
        "RUN pip install torchtext\n",
        "ROCM_TORCH_REPLACED",
        ("torchtext", "constraints.txt"),
        id="g2-02-requirements-torchvision",
    ),
    pytest.param(
        "RUN pip install --index-url https://repo.radeon.com/rocm/manylinux/rocm-rel-7.2.1/"
        " torch==2.9.1+rocm7.2.1\n",
        "INDEX_STYLE_MISMATCH",
        ("--find-links",),
        id="g2-04-find-links",
    ),
    pytest.param(
        "RUN set -o pipefail; wget -qO - https://x/rocm.gpg.key | apt-key add -\n",
        "APT_KEY_REMOVED",
        ("signed-by",),
        id="g2-08-apt-key",
    ),
    pytest.param(
        "RUN apt-get install -y --allow-unauthenticated rocm\n",
        "UNAUTHENTICATED_PACKAGES",
        ("signed-by",),
        id="g2-08-unauthenticated",
    ),
    pytest.param(
        "RUN curl -fsSL https://x/key | gpg --dearmor -o /etc/apt/keyrings/x.gpg\n",
        "PIPE_WITHOUT_PIPEFAIL",
        ("pipefail", "404"),
        id="g2-09-key-404",
    ),
    pytest.param(
        "RUN pip3 install --break-system-packages numpy\n",
        "PEP668",
        ("venv",),
        id="g2-13-pep668",
    ),
    pytest.param(
        "RUN apt-get update && apt-get install -y linux-headers-$(uname -r) amdgpu-dkms rocm\n",
        "DKMS_IN_IMAGE",
        ("--no-dkms", "host"),
        id="g2-18-dkms-in-image",
    ),
    pytest.param(
        "RUN amdgpu-install -y --usecase=rocm\n",
        "DKMS_IN_IMAGE",
        ("--no-dkms", "host"),
        id="g2-18-amdgpu-install",
    ),
    pytest.param(
        "RUN GPU_ARCHS=$(rocm_agent_enumerator | tail -1) python setup.py install\n",
        "ARCH_OF_BUILDER",
        ("PYTORCH_ROCM_ARCH",),
        id="g2-21-gpuless-builder",
    ),
    pytest.param(
        "ENV LD_LIBRARY_PATH=/opt/rocm/lib\n",
        "NEEDS_LD_LIBRARY_PATH",
        ("ld.so.conf.d",),
        id="g2-24-ld-library-path",
    ),
    pytest.param(
        "FROM rocm/pytorch:latest\n", "FLOATING_BASE", ("latest",), id="g3-01-latest-stale"
    ),
    pytest.param("FROM rocm/pytorch\n", "FLOATING_BASE", ("latest",), id="g3-01-no-tag"),
    pytest.param(
        "ENV HSA_OVERRIDE_GFX_VERSION=11.0.0\n",
        "HSA_OVERRIDE_IN_IMAGE",
        ("leave it out",),
        id="g1-10-override-blanket",
    ),
    pytest.param(
        "RUN groupadd -g 109 render && useradd -G video,render dev\n",
        "HARDCODED_RENDER_GID",
        ("109", "--group-add"),
        id="g1-17-hardcoded-groupadd",
    ),
]


def codes(name: str, text: str, builder: Builder = "buildkit") -> set[str]:
    return {one.problem.code for one in lint(name, text, builder=builder)}


@pytest.mark.parametrize(("text", "code", "says"), DOCKERFILES)
@pytest.mark.parametrize("before", ["", "FROM debian:13\n# words\n"])
def test_what_breaks_images_elsewhere_is_found_with_its_line(
    before: str, text: str, code: str, says: tuple[str, ...]
) -> None:
    found = {one.problem.code: one.problem for one in lint("Dockerfile", before + text)}
    assert code in found
    check_told(found[code], (*says, f"Dockerfile:{1 + before.count(chr(10))}"))


@pytest.mark.parametrize(
    "text",
    [
        "RUN pip install --index-url https://download.pytorch.org/whl/rocm6.4 torch torchvision\n",
        "RUN pip install --extra-index-url https://x torch==2.9.1+rocm6.4\n",
        "RUN pip install --no-index --find-links /wheels torch\n",
        "RUN pip install -c /usr/share/rocm-torch/constraints.txt vllm numpy\n",
        "RUN pip install numpy transformers\n",
        "RUN apt-get install -y rocm-dev || true\n",
        "RUN groupadd -f render\n",
        "RUN amdgpu-install -y --no-dkms --usecase=rocm\n",
        "RUN <<EOF\nset -eo pipefail\ncurl x | tar x\nEOF\n",
        'SHELL ["/bin/bash", "-o", "pipefail", "-c"]\nRUN curl x | tar x\n',
        "FROM debian:13 AS one\nFROM one\n",
        "FROM rocm/pytorch@sha256:" + "a" * 64 + "\n",
        "# rocm-torch: ignore=APT_KEY_REMOVED\nRUN apt-key list\n",
    ],
)
def test_what_is_right_is_left_alone(text: str) -> None:
    assert lint("Dockerfile", text) == ()


def test_a_new_stage_has_the_usual_shell_again() -> None:
    text = 'FROM a:1\nSHELL ["/bin/bash", "-o", "pipefail", "-c"]\nFROM b:1\nRUN a | b\n'
    assert codes("Dockerfile", text) == {"PIPE_WITHOUT_PIPEFAIL"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(
            "numpy\ntorchvision>=0.20\ntransformers\n",
            ("torchvision>=0.20", "requirements.txt:2"),
            id="g2-02-requirements-torchvision",
        ),
        pytest.param(
            "# ours\nllamafactory[metrics,vllm]\n",
            ("vllm", "requirements.txt:2"),
            id="g2-03-transitive-nvidia",
        ),
        pytest.param("Flash_Attn==2.8\n", ("Flash_Attn==2.8",), id="g2-02-spelling"),
    ],
)
def test_requirements_that_replace_torch_are_found(text: str, names: tuple[str, ...]) -> None:
    (found,) = lint("requirements.txt", text)
    assert found.problem.code == "ROCM_TORCH_REPLACED"
    check_told(found.problem, names)


def test_requirements_without_torch_and_exact_builds_are_left_alone() -> None:
    text = "-r base.txt\nnumpy>=2\ntorch==2.9.1+rocm7.2.1\ntorchmetrics\nnot-torch @ file:///x\n"
    assert lint("requirements.txt", text) == ()


CLASSIC = """# syntax=docker/dockerfile:1
FROM ubuntu:24.04
RUN --mount=type=cache,target=/root/.cache/pip true
RUN <<EOF
true
EOF
"""


@pytest.mark.parametrize("case_id", ["g5-01-no-buildkit"])
def test_what_the_classic_builder_does_not_know_is_told_before_a_build(case_id: str) -> None:
    found = lint("Dockerfile", CLASSIC, builder="classic")
    assert [one.problem.code for one in found] == ["NEEDS_BUILDKIT"] * 2
    check_told(found[0].problem, ("RUN --mount", "Dockerfile:3", "docker buildx"))
    assert buildkit_features("FROM a\nRUN echo '<' && true\n") == ()
    assert codes("Dockerfile", CLASSIC) == set()


@pytest.mark.parametrize("case_id", ["g5-01-no-buildkit"])
def test_every_template_says_which_of_its_lines_need_buildkit(case_id: str) -> None:
    for path in sorted((ROOT / "tests/unit/golden").glob("*.Dockerfile")):
        assert {name for _, name in buildkit_features(path.read_text())} == {"RUN --mount"}, path


def test_our_own_contexts_have_none_of_it() -> None:
    paths = [*(ROOT / "images").glob("*/Dockerfile"), *(ROOT / "tests/unit/golden").iterdir()]
    assert len(paths) > 10
    found = {str(path): lint("Dockerfile", path.read_text()) for path in paths}
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_the_command_ends_with_2_where_something_is_wrong_and_tells_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = tmp_path / "Dockerfile", tmp_path / "requirements.txt"
    bad.write_text("RUN apt-key list\nRUN a | b\n")
    good.write_text("numpy\n")
    assert run(["lint", str(good)]) == 0
    assert "nothing found" in capsys.readouterr().out
    assert run(["lint", str(bad), str(good)]) == 2
    told = capsys.readouterr().err
    assert "APT_KEY_REMOVED" in told
    assert "warning: " in told
    assert run(["lint", "--json", str(bad)]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "rocm-torch/lint/v1"
    assert [one["severity"] for one in document["findings"]] == ["error", "warning"]
    assert run(["lint", str(tmp_path / "none")]) == 64


@given(st.text(alphabet="RUNFOM \n\\#<\"'|&;-=pitorch/EOF[]1", max_size=200))
def test_any_text_can_be_read_and_lines_are_those_of_the_file(text: str) -> None:
    for name in ("Dockerfile", "requirements.txt"):
        for found in lint(name, text, builder="classic"):
            line = int((found.problem.where or "").rpartition(":")[2])
            assert 1 <= line <= len(text.splitlines())
    numbers = [one.line for one in instructions(text)]
    assert numbers == sorted(set(numbers))
