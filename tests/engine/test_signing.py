"""Signing with a real cosign: what is released is signed, cosign agrees, and lies are named."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import yaml
from projects import IMAGE, Project, tiny_project, with_own_images

from builder.engines.layout import Layout
from builder.engines.layout.manifest import parse_manifest
from builder.engines.registry import Attachment, Registry
from builder.oci import SIGSTORE_BUNDLE, TEST_REPORT, Digest, canonical_json

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

OWN = f"{IMAGE}-signed"
PASSWORD = "correct horse"  # noqa: S105


@dataclass(frozen=True)
class Signed:
    """A released project whose lane is signed, with the right key pair and another one."""

    project: Project
    keys: Path
    digest: Digest
    refused: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)

    def key(self, name: str = "ours") -> dict[str, str]:
        return {
            "ROCM_TORCH_SIGNING_KEY": str(self.keys / f"{name}.key"),
            "COSIGN_PASSWORD": PASSWORD,
        }

    def public(self, name: str = "ours") -> str:
        return str(self.keys / f"{name}.pub")

    @property
    def host(self) -> str:
        assert self.project.registry
        return self.project.registry

    @property
    def name(self) -> str:
        return f"{self.host}/{OWN}@{self.digest}"

    def cosign(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Ask cosign itself, with the network of this host to reach the registry on loopback."""
        argv = ["docker", "run", "--rm", "--network=host", f"--env=COSIGN_PASSWORD={PASSWORD}"]
        argv += [f"--volume={self.keys}:{self.keys}", f"--workdir={self.keys}"]
        argv += [self.project.tools_image, "cosign", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def signed(run_folder: Path, bases: Path, registry_url: str) -> Signed:
    """Return a project released without signature, converted, tested, and only then signed."""
    made = tiny_project(run_folder / "projects" / "signed", bases, registry_url)
    project = with_own_images(made, OWN)
    (row,) = project.release()["cells"]
    sif = project.done("sif", row["cell"])["record"]["path"]
    project.done("test", "--sif", sif)
    keys = project.root / "keys"
    keys.mkdir()
    signed = Signed(project, keys, Digest(row["digest"]))
    for name in ("ours", "theirs"):
        done = signed.cosign("generate-key-pair", f"--output-key-prefix={name}")
        assert done.returncode == 0, done.stderr
    matrix = project.root / "matrix.yaml"
    document = yaml.safe_load(matrix.read_text("utf-8"))
    document["signing"] = {"public_key": "keys/ours.pub"}
    document["lanes"]["tiny"]["policy"]["signed"] = True
    matrix.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    (entry,) = project.done("plan", "--registry", registry_url)["cells"]
    assert entry["reasons"] == ["not signed with the key of the matrix"]
    words = ("release", "--registry", registry_url)
    signed.refused["no key"] = project.call(*words)
    signed.refused["another key"] = project.call(*words, **signed.key("theirs"))
    wrong = {**signed.key(), "COSIGN_PASSWORD": "wrong"}
    signed.refused["wrong password"] = project.call(*words, **wrong)
    assert bundles(signed, signed.digest) == []
    (again,) = project.release(**signed.key())["cells"]
    assert again["digest"] == signed.digest
    return signed


def bundles(signed: Signed, digest: Digest) -> list[Digest]:
    with Registry(signed.host) as registry:
        return [one.digest for one in registry.referrers(OWN, digest, SIGSTORE_BUNDLE)]


def test_image_and_every_document_are_signed_once_and_a_second_release_signs_nothing(
    signed: Signed,
) -> None:
    with Registry(signed.host) as registry:
        documents = [
            one.digest
            for one in registry.referrers(OWN, signed.digest)
            if one.artifact_type != SIGSTORE_BUNDLE
        ]
    assert len(documents) == 3
    before = {digest: bundles(signed, digest) for digest in (signed.digest, *documents)}
    assert [len(found) for found in before.values()] == [1, 1, 1, 1]
    signed.project.release(**signed.key())
    signed.project.done("publish", "--registry", signed.host, "--force", **signed.key())
    assert {digest: bundles(signed, digest) for digest in before} == before
    (entry,) = signed.project.done("plan", "--registry", signed.host)["cells"]
    assert entry["state"] == "current", entry


def test_cosign_itself_accepts_image_and_documents_by_the_key_and_by_no_other(
    signed: Signed,
) -> None:
    with Registry(signed.host) as registry:
        listed = registry.referrers(OWN, signed.digest)
    names = [signed.digest, *(one.digest for one in listed if one.artifact_type == TEST_REPORT)]
    words = ("verify", "--insecure-ignore-tlog", "--allow-http-registry")
    for digest in names:
        reference = f"{signed.host}/{OWN}@{digest}"
        done = signed.cosign(*words, f"--key={signed.public()}", reference)
        assert done.returncode == 0, done.stderr
        refused = signed.cosign(*words, f"--key={signed.public('theirs')}", reference)
        assert refused.returncode != 0, refused.stdout


def test_verify_checks_signatures_by_the_matrix_and_by_a_key_that_is_given(signed: Signed) -> None:
    found = signed.project.done("verify", signed.name)
    (told,) = (one for one in found["checks"] if one["subject"] == "signatures")
    assert told["state"] == "ok"
    assert all(name in told["detail"] for name in ("image", "SPDX", "CycloneDX", "test report"))
    other = signed.project.call("verify", signed.name, "--key", signed.public("theirs"))
    assert other.returncode == 2
    assert "SIGNATURE_WRONG" in other.stderr
    assert "accepted signatures do not match threshold" in other.stderr


def test_a_report_that_somebody_else_put_beside_a_signed_image_is_named(signed: Signed) -> None:
    repository = "rocm-torch-test/forged"
    folder = signed.project.root / ".rocm-torch/evidence" / signed.digest.hex
    report = json.loads((folder / "test-smoke.json").read_bytes())
    report["started"] = "2099-01-01T00:00:00Z"
    with Registry(signed.host) as registry:
        layout = Layout(signed.project.root / ".rocm-torch/layout")
        subject = registry.push_image(layout, signed.digest, repository).descriptor
        (bundle,) = bundles(signed, signed.digest)
        (layer,) = parse_manifest(registry.get_manifest(OWN, bundle)[1], "bundle").layers
        signature = b"".join(registry.get_blob(OWN, layer))
        forged = canonical_json(report)
        beside = ((SIGSTORE_BUNDLE, signature), (TEST_REPORT, forged))
        attachments = [Attachment(kind, content, kind) for kind, content in beside]
        registry.attach_all(repository, subject, attachments)
    name = f"{signed.host}/{repository}@{signed.digest}"
    told = signed.project.call("verify", name, "--key", signed.public())
    assert told.returncode == 2
    (line,) = (one for one in told.stderr.splitlines() if "NOT_SIGNED" in one)
    assert "signature of the test report" in told.stderr
    assert "signature of the image" not in told.stderr, line


@pytest.mark.parametrize(
    ("what", "exit_code", "code", "told"),
    [
        ("no key", 64, "SIGNING_KEY_MISSING", "--signing-key"),
        ("another key", 2, "SIGNING_KEY_OTHER", "public half"),
        ("wrong password", 1, "SIGNING_FAILED", "COSIGN_PASSWORD"),
    ],
)
def test_without_the_right_key_nothing_is_signed_and_the_reason_is_told(
    signed: Signed, what: str, exit_code: int, code: str, told: str
) -> None:
    result = signed.refused[what]
    assert result.returncode == exit_code, result.stderr
    assert code in result.stderr
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_a_sif_is_signed_and_pulled_only_with_the_right_key(signed: Signed, tmp_path: Path) -> None:
    project = signed.project
    words = ("publish-sif", "--registry", signed.host)
    (record,) = project.done(*words, **signed.key())["records"]
    assert record["signed_with"]
    reference = f"{signed.host}/{OWN}:{record['tags'][-1]}"
    target = tmp_path / "pulled.sif"
    refused = project.call(
        "pull-sif", reference, "--output", str(target), "--key", signed.public("theirs")
    )
    assert refused.returncode == 2
    assert "SIGNATURE_WRONG" in refused.stderr
    assert not target.exists()
    project.done("pull-sif", reference, "--output", str(target), "--key", signed.public())
    assert target.stat().st_size > 0


def test_neither_password_nor_key_is_written_down(signed: Signed) -> None:
    key = (signed.keys / "ours.key").read_text("ascii")
    state = signed.project.root / ".rocm-torch"
    for path in (*state.glob("*.jsonl"), *state.rglob("records/**/*"), *state.rglob("logs/**/*")):
        if path.is_file():
            text = path.read_text("utf-8", "replace")
            assert PASSWORD not in text
            assert key.splitlines()[2] not in text
    assert not any((state / "signing").iterdir())
