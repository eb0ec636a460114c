"""The whole chain on tiny cells: real BuildKit, containers, scanner and registry, no torch."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from projects import IMAGE, REPO, with_own_images

from builder.engines.docker_engine import DockerEngine
from builder.engines.layout import Layout
from builder.engines.registry import Registry
from builder.oci import INDEX, Digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from projects import Project

pytestmark = pytest.mark.engine


@pytest.fixture
def project(make_project: Callable[..., Project]) -> Project:
    return make_project()


def registry_of(project: Project) -> Registry:
    assert project.registry
    return Registry(project.registry)


def test_a_release_is_one_digest_everywhere_with_its_evidence_and_a_second_changes_nothing(
    project: Project,
) -> None:
    first = project.release()
    (row,) = first["cells"]
    assert row["verdict"] == "pass"
    engine = DockerEngine()
    with registry_of(project) as registry:
        for tag in row["tags"]:
            found = registry.head(IMAGE, tag)
            assert found is not None
            assert found.digest == row["digest"] == engine.image_id(f"{IMAGE}:{tag}")
        kinds = {one.artifact_type for one in registry.referrers(IMAGE, Digest(row["digest"]))}
    # Equal inputs are one digest, so another test's SIF may hang on it as well.
    assert kinds >= {
        "application/spdx+json",
        "application/vnd.cyclonedx+json",
        "application/vnd.rocm-torch.test-report.v1+json",
    }
    log = project.root / ".rocm-torch/tools.jsonl"
    calls = len(log.read_text("utf-8").splitlines())
    assert project.release() == first
    later = [json.loads(line)["argv"] for line in log.read_text("utf-8").splitlines()[calls:]]
    assert not [argv for argv in later if "bake" in argv or "scan" in argv]


def test_a_failed_self_test_closes_the_gate(project: Project) -> None:
    project.verdict("fail")
    result = project.call("release", "--registry", str(project.registry), "--json")
    assert result.returncode == 2
    document = json.loads(result.stdout)
    assert [problem["code"] for problem in document["problems"]] == ["GATE_CLOSED"]
    assert document["answer"]["cells"][0]["verdict"] == "fail"


def test_an_incomplete_self_test_exits_3_and_sets_no_tag(project: Project) -> None:
    project.verdict("incomplete")
    result = project.call("release", "--registry", str(project.registry))
    assert result.returncode == 3
    assert "GATE_INCOMPLETE" in result.stderr
    assert "Traceback" not in result.stderr


def test_one_cell_that_cannot_be_built_leaves_the_others_going(
    make_project: Callable[..., Project],
) -> None:
    project = make_project(cells=2)
    facts = project.facts / "distro_torch.yaml"
    text = facts.read_text("utf-8")
    facts.write_text(text.replace("python-is-python3", "no-such-package", 1), "utf-8")
    result = project.call("release", "--registry", str(project.registry))
    assert result.returncode == 1
    assert "BUILD_FAILED" in result.stderr
    assert "Unable to locate package no-such-package" in result.stderr
    assert "build.log" in result.stderr
    assert result.stdout.count("pass") == 1, result.stdout


def test_two_builds_without_cache_in_two_folders_give_the_same_bytes(project: Project) -> None:
    (answer,) = project.done("reproduce")["cells"]
    assert answer["equal"]
    assert len(set(answer["digests"])) == 1
    assert answer["documents"][0] == answer["documents"][1]


def test_the_plan_names_what_is_missing_and_what_changed(project: Project) -> None:
    project.done("build")
    (entry,) = project.done("plan")["cells"]
    assert entry["state"] == "unfinished"
    assert entry["reasons"] == ["no test report of level smoke", "no SBOM", "never published"]
    script = project.root / "images/rootfs/usr/local/bin/rocm-torch-entrypoint"
    script.write_text(script.read_text("utf-8") + "\n", "utf-8")
    template = project.root / "templates/macros/apt.j2"
    template.write_text(template.read_text("utf-8").replace("set -eu;", "set -e -u;"), "utf-8")
    (entry,) = project.done("plan")["cells"]
    assert entry["state"] == "stale"
    assert entry["reasons"] == ["template macros/apt.j2 changed", "files in images/rootfs changed"]


def test_the_plan_asks_the_registry_where_each_tag_is(project: Project) -> None:
    (row,) = project.release()["cells"]
    assert project.registry
    words = ("plan", "--registry", project.registry)
    assert project.done(*words)["cells"][0]["state"] == "current"
    with registry_of(project) as registry:
        other = b'{"schemaVersion":2,"mediaType":"' + INDEX.encode() + b'","manifests":[]}'
        registry.push_manifest(IMAGE, row["tags"][-1], other, INDEX)
    (entry,) = project.done(*words)["cells"]
    assert entry["reasons"] == [f"tag not where it should be: {row['tags'][-1]}"]


def test_the_plan_names_the_documents_that_a_tagged_image_lacks(project: Project) -> None:
    image = f"{IMAGE}-bare"
    (built,) = with_own_images(project, image).done("build")["records"]
    (tag, *_) = (ref.rpartition(":")[2] for ref in project.done("matrix")["cells"][0]["tags"])
    assert project.registry
    with registry_of(project) as registry:
        layout, digest = Layout(project.root / ".rocm-torch/layout"), Digest(built["digest"])
        registry.push_image(layout, digest, image)
        registry.tag(image, digest, tag)
    (entry,) = project.done("plan", "--registry", project.registry)["cells"]
    missing = [reason for reason in entry["reasons"] if reason.startswith("referrer missing")]
    names = ("sbom.spdx.json", "sbom.cyclonedx.json", "test-smoke.json")
    assert missing == [f"referrer missing: {name}" for name in names]


def test_prune_shows_first_and_removes_what_nothing_refers_to(project: Project) -> None:
    project.release()
    kept = project.done("prune")
    assert {item["kind"] for item in kept["garbage"]} == {"stage"}
    script = project.root / "images/rootfs/usr/local/bin/rocm-torch-entrypoint"
    script.write_text(script.read_text("utf-8") + "\n", "utf-8")
    project.release()
    found = project.done("prune", "--yes")
    assert {"blob", "layout entry", "evidence", "image"} <= {i["kind"] for i in found["garbage"]}
    assert project.done("prune")["garbage"] == []
    assert project.done("plan")["cells"][0]["state"] == "current"


def test_the_shipped_contexts_are_what_the_templates_say() -> None:
    from projects import Project

    result = Project(REPO).call("render", "--check")
    assert result.returncode == 0, result.stderr


def test_stand_in_nodes_reach_the_self_test_of_the_non_root_user(
    project: Project, tmp_path: Path
) -> None:
    for name in ("dev/kfd", "dev/dri/renderD128"):
        node = tmp_path / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, 0o660 | stat.S_IFCHR, os.makedev(1, 3))
        os.chown(node, 0, 992)
        node.chmod(0o660)
    (row,) = project.release("--device-root", str(tmp_path))["cells"]
    folder = project.root / ".rocm-torch/evidence" / Digest(row["digest"]).hex
    report = json.loads((folder / "test-smoke.json").read_text("utf-8"))
    both = ["/dev/kfd", "/dev/dri/renderD128"]
    assert report["selftest"]["environment"] == {"nodes": both, "readable": both}
    assert [device["gid"] for device in report["host"]["devices"]] == [992, 992]
