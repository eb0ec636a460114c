"""The documents of real runs (on CUDA, see docs/verified) still mean what the page says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.cli.main import run

VERIFIED = Path(__file__).parents[2] / "docs/verified"
MODELS = (
    "resnet50",
    "bert-base",
    "yolov5s",
    "vit-b16",
    "sd15-unet",
    "llama2-7b",
    "whisper-medium",
)


def document(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((VERIFIED / f"cuda-h200-{name}.json").read_text("utf-8"))
    return loaded


def compared(new: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    files = [str(VERIFIED / f"cuda-h200-{name}.json") for name in ("bench-1", new)]
    status = run(["bench", "compare", "--json", *files])
    rows = json.loads(capsys.readouterr().out)["pairs"]
    return status, {row["workload"]: row["code"] for row in rows}


def test_two_runs_of_one_build_are_no_change(capsys: pytest.CaptureFixture[str]) -> None:
    status, codes = compared("bench-2", capsys)
    assert status == 0
    assert set(codes.values()) == {"NO_CHANGE"}


def test_a_run_slowed_by_15_percent_is_a_regression_for_every_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, codes = compared("bench-slowed", capsys)
    assert status == 2
    for model in MODELS:
        found = {code for name, code in codes.items() if name.startswith(model)}
        assert found == {"REGRESSION"}, model


@pytest.mark.parametrize("name", ["gpu", "bench-1", "bench-2", "bench-slowed"])
def test_every_document_says_that_it_is_from_cuda_and_passed(name: str) -> None:
    found = document(name)
    assert found["environment"]["backend"] == "cuda"
    assert found["environment"]["hip"] is None
    assert found["summary"]["verdict"] == "pass"
