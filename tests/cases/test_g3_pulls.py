"""Field cases of group G3 that concern bases: what a tag says, and what a registry answers."""

from __future__ import annotations

import pytest
from told import check_told

from builder.facts import load_facts
from builder.facts.upstream_tag import read_upstream_tag
from builder.plan.causes import Output, first_cause
from builder.plan.lint import lint

FACTS = load_facts()


@pytest.mark.parametrize(
    ("tag", "kind", "torch", "usable"),
    [
        pytest.param(
            "rocm3.0_ubuntu16.04_py3.6",
            "without-torch",
            None,
            False,
            id="g3-04-tag-without-torch",
        ),
        pytest.param(
            "rocm3.0_ubuntu16.04_py3.6_pytorch",
            "torch",
            "unversioned",
            True,
            id="g3-04-unversioned",
        ),
        ("rocm6.1.3_ubuntu22.04_py3.10_pytorch_release-2.1.2", "torch", "2.1.2", True),
        ("rocm10.1.0_ubuntu24.04_py3.12_pytorch_release_2.14.0", "torch", "2.14.0", True),
        ("rocm6.3.2_ubuntu22.04_py3.10_pytorch_release_2.5.1_preview", "torch", "2.5.1", False),
        ("rocm5.7_centos7_py3.9_pytorch_staging", "torch", "unversioned", False),
        ("rocm6.4_ubuntu22.04_py3.10.16_dgl_release_2.3.0", "without-torch", None, False),
        ("latest", "moving", None, False),
        ("latest-release-preview", "moving", None, False),
        ("latest2", "other", None, False),
        ("rocm-6.1", "other", None, False),
    ],
)
def test_a_tag_of_amd_says_whether_there_is_a_torch(
    tag: str, kind: str, torch: str | None, usable: bool
) -> None:
    found = read_upstream_tag(tag)
    assert (found.kind, found.torch, found.usable) == (kind, torch, usable)


def test_what_is_read_in_every_tag_agrees_with_the_facts_about_it() -> None:
    images = [one for one in FACTS.subjects["upstream_images"] if hasattr(one, "tag")]
    assert len(images) > 100
    for image in images:
        read = read_upstream_tag(image.tag)
        assert read.kind != "other", image.tag
        assert read.usable == (image.torch is not None), image.tag  # type: ignore[attr-defined]
        if read.usable:
            assert read.distro == image.distro  # type: ignore[attr-defined]
            assert read.python == image.python  # type: ignore[attr-defined]
            assert image.torch.startswith(read.torch)  # type: ignore[attr-defined]


@pytest.mark.parametrize("case_id", ["g3-04-tag-without-torch"])
@pytest.mark.parametrize("host", ["", "docker.io/"])
def test_a_base_without_torch_is_refused_by_the_lint(case_id: str, host: str) -> None:
    base = f"{host}rocm/pytorch:rocm3.0_ubuntu16.04_py3.6"
    (found,) = lint("Dockerfile", f"FROM {base}\n")
    assert (found.problem.code, found.severity) == ("BASE_WITHOUT_TORCH", "error")
    check_told(found.problem, (base, "Dockerfile:1"))
    assert lint("Dockerfile", f"FROM {base}_pytorch\n") == ()


@pytest.mark.parametrize("case_id", ["g3-01-latest-stale"])
def test_a_floating_base_is_a_warning_that_names_it(case_id: str) -> None:
    (found,) = lint("Dockerfile", "FROM rocm/pytorch:latest\n")
    assert (found.problem.code, found.severity) == ("FLOATING_BASE", "warning")
    check_told(found.problem, ("rocm/pytorch:latest",))


@pytest.mark.parametrize("case_id", ["g3-02-latest-broken-pair"])
def test_a_missing_operator_of_torchvision_is_told_as_another_build(case_id: str) -> None:
    cause = first_cause(Output("RuntimeError: operator torchvision::nms does not exist\n", 1))
    assert cause is not None
    assert cause.code == "TORCHVISION_MISMATCH"


@pytest.mark.parametrize(
    ("text", "code", "says", "retryable", "wait"),
    [
        pytest.param(
            'HTTP 429\nretry-after: 900\n{"errors":[{"code":"TOOMANYREQUESTS"}]}\n',
            "RATE_LIMIT",
            "log in",
            True,
            900.0,
            id="g3-08-rate-limit",
        ),
        pytest.param(
            "ERROR: failed to solve: rocm/pytorch:rocm6.3.1_ubuntu24.04: failed to resolve source"
            " metadata: rocm/pytorch:rocm6.3.1_ubuntu24.04: not found\n",
            "IMAGE_NOT_FOUND",
            "existing tag",
            False,
            None,
            id="g3-05-nonexistent-combo",
        ),
        pytest.param(
            "Error response from daemon: manifest unknown\n",
            "IMAGE_NOT_FOUND",
            "existing tag",
            False,
            None,
            id="g3-05-manifest-unknown",
        ),
    ],
)
def test_what_the_registry_of_a_base_says_is_told_apart(
    text: str, code: str, says: str, retryable: bool, wait: float | None
) -> None:
    cause = first_cause(Output(text, exit_code=1))
    assert cause is not None
    assert (cause.code, cause.retryable, cause.wait_seconds) == (code, retryable, wait)
    check_told(cause.problem, (says,))
    assert "not found" not in cause.problem.what
