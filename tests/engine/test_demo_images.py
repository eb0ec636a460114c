"""The two images of the demo, built for real: torch from Debian, tested in their containers."""

from __future__ import annotations

import json
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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine
# Checks for what these images do not promise.
OTHER_FLAVOURS = {"hipify", "opencl"}
CELLS = ("cpu-torch2.6.0-py313-debian13", "cpu-torch1.13.1-py311-debian12")


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


def selftest(client: docker.DockerClient, digest: str, level: str) -> tuple[int, dict[str, Any]]:
    """Run the self-test as a user would, and return its exit code and document."""
    words = ["rocm-torch-selftest", "--level", level, "--json"]
    container = client.containers.run(digest, words, detach=True)
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
