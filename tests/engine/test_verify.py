"""`verify` against a real registry: a release holds, and each kind of lie is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from projects import IMAGE, Project, tiny_project

from builder.engines.layout import Layout
from builder.engines.registry import Attachment, Registry
from builder.oci import CYCLONEDX_JSON, SPDX_JSON, TEST_REPORT, Digest, canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine

FILES = {
    SPDX_JSON: "sbom.spdx.json",
    CYCLONEDX_JSON: "sbom.cyclonedx.json",
    TEST_REPORT: "test-smoke.json",
}
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def project(run_folder: Path, bases: Path, registry_url: str) -> Project:
    """Return a project of two released cells that no test changes."""
    made = tiny_project(run_folder / "projects" / "verify", bases, registry_url, cells=2)
    made.release()
    return made


@pytest.fixture
def registry(registry_url: str) -> Iterator[Registry]:
    with Registry(registry_url) as client:
        yield client


def digests(project: Project) -> list[Digest]:
    """Return the digests of both cells, the newest first."""
    found = [cell["digest"] for cell in project.release()["cells"]]
    return [Digest(digest) for digest in found]


def evidence(project: Project, digest: Digest) -> dict[str, bytes]:
    folder = project.root / ".rocm-torch/evidence" / digest.hex
    return {kind: (folder / name).read_bytes() for kind, name in FILES.items()}


def published(
    project: Project, registry: Registry, repository: str, documents: dict[str, bytes]
) -> str:
    """Publish the newest image to a repository of its own with other evidence."""
    digest = digests(project)[0]
    layout = Layout(project.root / ".rocm-torch/layout")
    subject = registry.push_image(layout, digest, repository).descriptor
    attachments = [Attachment(kind, content, kind) for kind, content in documents.items()]
    registry.attach_all(repository, subject, attachments)
    tag = f"cpu-torch1.0.0-py313-debian13-20260101-{digest.hex[:8]}"
    registry.tag(repository, digest, tag)
    return f"{registry.host}/{repository}:{tag}"


def changed(content: bytes, change: Change) -> bytes:
    document = json.loads(content)
    change(document)
    return canonical_json(document)


def refused(project: Project, reference: str) -> str:
    """Verify what has to be refused, and return what is said."""
    result = project.call("verify", reference)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_release_holds(project: Project) -> None:
    answer = project.done("verify", f"{project.registry}/{IMAGE}:cpu")
    assert answer["holds"]
    assert {check["state"] for check in answer["checks"]} == {"ok"}


def test_untouched_evidence_in_another_repository_holds(
    project: Project, registry: Registry
) -> None:
    documents = evidence(project, digests(project)[0])
    reference = published(project, registry, "verify/same", documents)
    assert project.done("verify", reference)["holds"]


def test_a_removed_sbom_is_missed(project: Project, registry: Registry) -> None:
    documents = evidence(project, digests(project)[0])
    del documents[SPDX_JSON]
    reference = published(project, registry, "verify/removed", documents)
    assert "no SPDX among its referrers" in refused(project, reference)


def test_the_sbom_of_another_image_is_seen(project: Project, registry: Registry) -> None:
    newest, other = digests(project)
    documents = evidence(project, newest) | {SPDX_JSON: evidence(project, other)[SPDX_JSON]}
    reference = published(project, registry, "verify/other", documents)
    assert f"it is about {other}" in refused(project, reference)


def test_an_edited_report_is_seen(project: Project, registry: Registry) -> None:
    def fail(document: dict[str, Any]) -> None:
        document["selftest"]["checks"][0]["status"] = "fail"

    documents = evidence(project, digests(project)[0])
    documents[TEST_REPORT] = changed(documents[TEST_REPORT], fail)
    reference = published(project, registry, "verify/report", documents)
    assert "is not what its checks come to" in refused(project, reference)


def test_a_package_taken_out_of_the_sbom_is_named(project: Project, registry: Registry) -> None:
    def remove(document: dict[str, Any]) -> None:
        document["packages"] = [one for one in document["packages"] if one["name"] != "dpkg"]

    documents = evidence(project, digests(project)[0])
    documents[SPDX_JSON] = changed(documents[SPDX_JSON], remove)
    reference = published(project, registry, "verify/package", documents)
    assert "1 packages of the layers are not listed: dpkg " in refused(project, reference)


def test_a_tag_moved_by_hand_is_seen(project: Project, registry: Registry) -> None:
    newest, other = digests(project)
    registry.tag(IMAGE, other, "cpu")
    try:
        said = refused(project, f"{registry.host}/{IMAGE}:cpu")
    finally:
        registry.tag(IMAGE, newest, "cpu")
    assert "by the matrix it is cpu-torch1.1.0-py313-debian13's" in said


def test_a_layer_that_is_gone_is_missed(project: Project, registry: Registry) -> None:
    digest = digests(project)[0]
    documents = evidence(project, digest)
    reference = published(project, registry, "verify/layer", documents)
    layer = Layout(project.root / ".rocm-torch/layout").manifest(digest).layers[-1]
    url = f"http://{registry.host}/v2/verify/layer/blobs/{layer.digest}"
    assert httpx.delete(url).status_code == 202
    assert layer.digest in refused(project, reference)


def test_what_is_not_there_is_missed_and_what_is_no_reference_is_a_bad_call(
    project: Project,
) -> None:
    assert "has no" in refused(project, f"{project.registry}/{IMAGE}:no-such-tag")
    assert project.call("verify", "a/b:c:d").returncode == 64
