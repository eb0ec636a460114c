"""The two images of the demo, built for real: torch from Debian, tested in their containers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from projects import Project
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from builder.engines.layout import Layout
from builder.oci import Digest
from builder.report.bench_compare import compare
from builder.report.bench_results import parse_run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine
# Of the published models; built without memory, on the device "meta".
PARAMETERS = {
    "resnet50": 25_557_032,
    "bert-base": 109_482_240,
    "yolov5s": 7_235_389,
    "vit-b16": 86_567_656,
    "sd15-unet": 859_520_964,
    "llama2-7b": 6_738_415_616,
    "whisper-medium": 763_857_920,
}
COUNT = """
import importlib, json, sys
sys.path.insert(0, "/usr/lib/rocm-torch")
import torch
from rocm_torch_selftest.bench.workloads import ALL
from rocm_torch_selftest.models.layers import born_on, count_parameters
found = {}
for workload in ALL:
    module = importlib.import_module("rocm_torch_selftest.models." + workload.model)
    with born_on("meta", torch.float16):
        found[workload.name] = count_parameters(module.build(module.Config()))
    assert found[workload.name] == module.PARAMETERS
print(json.dumps(found))
"""
# Checks for what these images do not promise.
OTHER_FLAVOURS = {"hipify", "opencl"}
PLANTED_TORCH = Path(__file__).with_name("planted_torch.py")
CELLS = ("cpu-torch2.6.0-py313-debian13", "cpu-torch1.13.1-py311-debian12")
# By cell: torch 1.13 has no half products on the CPU, and no choice of attention backends.
REHEARSED = (
    "devices matmul precision transfer conv attention amp train concurrent idle allreduce",
    "devices transfer train concurrent idle",
)


@pytest.fixture(scope="module")
def released(bases: Path, registry_url: str) -> dict[str, Any]:
    """Release the shipped matrix; built once a run."""
    return Project(bases, registry_url).release()


@pytest.fixture(scope="module")
def rows(released: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["cell"]: row for row in released["cells"]}


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env(timeout=300)
    yield client
    client.close()


def selftest(
    client: docker.DockerClient,
    digest: str,
    level: str,
    *options: str,
    environment: dict[str, str] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Run the self-test as a user would, and return its exit code and document."""
    words = ["rocm-torch-selftest", "--level", level, "--json", *options]
    return answer(client, image=digest, command=words, environment=environment)


def answer(client: docker.DockerClient, **run: Any) -> tuple[int, dict[str, Any]]:
    container = client.containers.run(**run, detach=True)
    try:
        code = container.wait(timeout=300)["StatusCode"]
        return code, json.loads(container.logs(stdout=True, stderr=False))
    finally:
        container.remove(force=True)


@pytest.mark.parametrize("cell", CELLS)
def test_smoke_passes_in_the_image(
    cell: str, rows: dict[str, dict[str, Any]], client: docker.DockerClient
) -> None:
    code, document = selftest(client, rows[cell]["digest"], "smoke")
    bad = [check for check in document["checks"] if check["status"] != "pass"]
    assert {check["id"] for check in bad if check["status"] == "not_applicable"} == OTHER_FLAVOURS
    bad = [check for check in bad if check["id"] not in OTHER_FLAVOURS]
    assert (code, document["summary"]["verdict"], bad) == (0, "pass", [])
    assert document["cell"] == cell


@pytest.mark.parametrize("cell", CELLS)
def test_level_gpu_without_a_gpu_is_incomplete_and_never_a_pass(
    cell: str, rows: dict[str, dict[str, Any]], client: docker.DockerClient
) -> None:
    code, document = selftest(client, rows[cell]["digest"], "gpu")
    assert (code, document["summary"]["verdict"]) == (3, "incomplete")


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS)
def test_level_bench_runs_every_workload_in_tiny_on_a_cpu_and_keeps_its_samples(
    cell: str, rows: dict[str, dict[str, Any]], client: docker.DockerClient
) -> None:
    options = ("--processes", "1")
    code, document = selftest(client, rows[cell]["digest"], "bench", *options)
    bad = [check for check in document["checks"] if check["status"] != "pass"]
    assert (code, document["summary"]["verdict"], bad) == (0, "pass", [])
    run = parse_run(document, "here")
    assert run.lineage == cell
    models = [one for one in run.measurements if "nominal_workload" in one.data]
    assert [one.check for one in models] == list(PARAMETERS)
    assert all("-tiny/" in one.workload and len(one.samples[0]) >= 5 for one in models)
    again = compare([run], [run], 0.5)
    assert again.verdict == "pass"


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "names"), tuple(zip(CELLS, REHEARSED, strict=True)))
def test_the_gpu_checks_rehearse_on_the_cpu_and_are_still_no_pass(
    cell: str, names: str, rows: dict[str, dict[str, Any]], client: docker.DockerClient
) -> None:
    only = [word for name in names.split() for word in ("--only", name)]
    code, document = selftest(client, rows[cell]["digest"], "gpu", "--rehearse", *only)
    assert document["rehearsal"] is True
    assert (code, document["summary"]["verdict"]) == (3, "incomplete")
    for check in document["checks"]:
        assert check["detail"].startswith("Rehearsed on the CPU"), check


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("wrong-product", "matmul", "in torch.bfloat16 is wrong"),
        ("lame-optimizer", "train", "must fall below"),
        ("broken-convolution", "conv", "times what rounding explains"),
        ("lost-bytes", "transfer", "1 of 67108864 bytes differ"),
        ("busy-waiting", "idle", "of a core while it waits"),
    ],
)
def test_a_fault_planted_into_the_real_torch_is_caught_and_named(
    fault: str,
    check: str,
    words: str,
    rows: dict[str, dict[str, Any]],
    client: docker.DockerClient,
) -> None:
    options = ["--json", "--level", "gpu", "--rehearse", "--only", check]
    code, document = answer(
        client,
        image=rows[CELLS[0]]["digest"],
        command=["python", "-m", "rocm_torch_selftest", *options],
        environment={"PLANTED_FAULT": fault, "PYTHONPATH": "/planted:/usr/lib/rocm-torch"},
        volumes={str(PLANTED_TORCH): {"bind": "/planted/torch/__init__.py", "mode": "ro"}},
    )
    assert code == 2
    assert words in document["checks"][0]["detail"]


@pytest.mark.slow
def test_a_run_slowed_on_purpose_says_so_in_its_result(
    rows: dict[str, dict[str, Any]], client: docker.DockerClient
) -> None:
    options = ("--subset", "llama2-7b", "--processes", "2")
    digest, slow = rows[CELLS[0]]["digest"], {"ROCM_TORCH_BENCH_SLOWDOWN": "4"}
    code, document = selftest(client, digest, "bench", *options, environment=slow)
    assert code == 0
    assert document["bench"]["subset"] == ["llama2-7b"]
    found = parse_run(document, "slowed")
    assert found.slowdown == 4.0
    assert len(found.measurements[0].samples) == 2


def test_the_models_have_the_parameters_of_the_published_ones(
    rows: dict[str, dict[str, Any]], client: docker.DockerClient
) -> None:
    words = ["python", "-c", COUNT]
    said = client.containers.run(rows[CELLS[0]]["digest"], words, remove=True)
    assert json.loads(said) == PARAMETERS


@pytest.mark.parametrize("cell", CELLS)
def test_the_sboms_name_torch_and_rocm(
    cell: str, rows: dict[str, dict[str, Any]], bases: Path
) -> None:
    folder = bases / ".rocm-torch/evidence" / Digest(rows[cell]["digest"]).hex
    for name in ("sbom.spdx.json", "sbom.cyclonedx.json"):
        text = (folder / name).read_text("utf-8")
        assert '"python3-torch"' in text
        assert '"rocminfo"' in text
        assert str(bases) not in text


@pytest.mark.parametrize("cell", CELLS)
def test_the_sboms_are_valid_spdx_and_cyclonedx(
    cell: str, rows: dict[str, dict[str, Any]], bases: Path
) -> None:
    folder = bases / ".rocm-torch/evidence" / Digest(rows[cell]["digest"]).hex
    document = parse_file(str(folder / "sbom.spdx.json"))
    messages = validate_full_spdx_document(document)
    assert [message.validation_message for message in messages] == []
    text = (folder / "sbom.cyclonedx.json").read_text("utf-8")
    version = SchemaVersion.from_version(json.loads(text)["specVersion"])
    assert JsonStrictValidator(version).validate_str(text) is None


def test_the_images_share_nothing_but_are_both_in_one_layout(
    rows: dict[str, dict[str, Any]], bases: Path
) -> None:
    layout = Layout(bases / ".rocm-torch/layout")
    for row in rows.values():
        assert layout.size(Digest(row["digest"])) == row["size"]


def test_the_newest_cell_has_the_widest_tag(rows: dict[str, dict[str, Any]]) -> None:
    assert rows[CELLS[0]]["tags"][-2:] == ["cpu-py313", "cpu"]
    assert rows[CELLS[1]]["tags"][-1] == "cpu-py311"


def test_the_line_to_run_next_starts_the_image(released: dict[str, Any]) -> None:
    assert released["run"].startswith("docker run --rm")
    assert released["run"].endswith("ourorg/rocm-torch:cpu python")
