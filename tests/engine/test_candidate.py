"""Candidates on a real registry: built in one working copy, tested and published in others."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import yaml
from projects import IMAGE, Project, with_own_images

from builder.engines.registry import Registry
from builder.oci import BUILD_RECORD, RUN_RECORD, TEST_REPORT, Digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.engine

OWN = f"{IMAGE}-candidate"


def waive(project: Project, reason: str) -> None:
    """Let the level gpu through by a waiver in the project's matrix."""
    path = project.root / "matrix.yaml"
    document = yaml.safe_load(path.read_text("utf-8"))
    waiver = {"levels": ["gpu"], "reason": reason, "until": "2099-12-31"}
    document["lanes"]["tiny"]["policy"]["waiver"] = waiver
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")


def other_machine(project: Project, root: Path) -> Project:
    """Return a checkout of the same commit that has built nothing: another machine's."""
    ignore = shutil.ignore_patterns(".rocm-torch")
    shutil.copytree(project.root, root, ignore=ignore)
    return Project(root, project.registry)


def test_build_test_and_publish_on_three_machines_are_joined_by_the_digest(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    builder = with_own_images(make_project(), OWN)
    where, file = ("--registry", str(builder.registry)), tmp_path / "candidate.json"
    made = builder.done("candidate", *where, "--run", "101-1", "--file", str(file))
    (one,) = made["candidates"]
    assert json.loads(file.read_text("utf-8"))["candidates"] == made["candidates"]
    with Registry(str(builder.registry)) as registry:
        assert one["tag"] in registry.list_tags(OWN)
        assert not [
            tag
            for tag in registry.list_tags(OWN)
            if tag.endswith(one["digest"][7:15]) and not tag.startswith("candidate-")
        ]

        tester = other_machine(builder, tmp_path / "tester")
        tested = tester.done("test", "--candidate", str(file), "--force")
        assert [record["verdict"] for record in tested["records"]] == ["pass"]

        publisher = other_machine(builder, tmp_path / "publisher")
        words = ("publish", "--candidates", str(file), "--sequence", "7")
        (record,) = publisher.done(*words)["records"]
        assert record["digest"] == one["digest"]
        assert record["bytes_sent"] == 0
        assert not (publisher.root / ".rocm-torch/layout").exists()
        for tag in record["tags"]:
            found = registry.head(OWN, tag)
            assert found is not None
            assert found.digest == one["digest"]
        kinds = {r.artifact_type for r in registry.referrers(OWN, Digest(one["digest"]))}
        assert {BUILD_RECORD, TEST_REPORT, RUN_RECORD} <= kinds
    fresh = other_machine(builder, tmp_path / "fresh")
    ask = ("ci", "plan", "--changed", *where, "--plan-file", str(tmp_path / "plan.json"))
    assert fresh.done(*ask)["cells"] == 0
    script = fresh.root / "images/rootfs/usr/local/bin/rocm-torch-entrypoint"
    script.write_text(script.read_text("utf-8") + "\n", "utf-8")
    assert fresh.done(*ask)["cells"] == 1
    verified = publisher.done("verify", f"{builder.registry}/{OWN}:{record['tags'][-1]}")
    assert verified["holds"], verified


def test_a_candidate_of_another_commit_is_not_published(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    builder = with_own_images(make_project(), OWN)
    file = tmp_path / "candidate.json"
    builder.done("candidate", "--registry", str(builder.registry), "--file", str(file))
    publisher = other_machine(builder, tmp_path / "publisher")
    script = publisher.root / "images/rootfs/usr/local/bin/rocm-torch-entrypoint"
    script.write_text(script.read_text("utf-8") + "\n", "utf-8")
    result = publisher.call("publish", "--candidates", str(file), "--json")
    assert result.returncode == 2
    assert "CANDIDATE_STALE" in result.stdout


def test_a_failed_self_test_pushes_no_candidate(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project = with_own_images(make_project(), OWN)
    project.verdict("fail")
    file = tmp_path / "candidate.json"
    words = ("candidate", "--registry", str(project.registry), "--file", str(file), "--json")
    result = project.call(*words)
    assert result.returncode == 2
    assert "TEST_FAIL" in result.stdout
    assert not file.exists()


def test_a_level_that_is_missing_keeps_a_candidate_from_its_tags(
    make_project: Callable[..., Project], tmp_path: Path
) -> None:
    project = with_own_images(make_project(levels=("smoke", "gpu")), OWN)
    file = tmp_path / "candidate.json"
    where = ("--registry", str(project.registry))
    project.done("candidate", *where, "--file", str(file))
    publisher = other_machine(project, tmp_path / "publisher")
    words = ("publish", "--candidates", str(file))
    result = publisher.call(*words, "--json")
    assert result.returncode == 3
    assert "GATE_INCOMPLETE" in result.stdout
    waive(publisher, "no machine yet")
    (record,) = publisher.done(*words)["records"]
    assert "waiver-gpu.json" in record["referrers"]
    found = publisher.done("verify", f"{record['registry']}/{OWN}@{record['digest']}")
    (told,) = (one for one in found["checks"] if one["subject"] == "waiver (gpu)")
    assert told["state"] == "ok"
    assert "2099-12-31: no machine yet" in told["detail"]
