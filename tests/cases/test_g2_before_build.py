"""Field cases of group G2 that are found before anything is built or sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from registry_server import FakeRegistry, serving
from samples import CELL, cell, project
from test_pipeline_steps import session
from told import check_told

from builder.engines.layout import Layout
from builder.engines.registry import Registry
from builder.errors import RefusedError
from builder.facts import load_facts
from builder.matrix.families import FAMILIES, Combination
from builder.matrix.rules import judge, rejected
from builder.oci import (
    CONFIG,
    EMPTY,
    LAYER_GZIP,
    MANIFEST,
    Descriptor,
    Digest,
    canonical_json,
)
from builder.pipeline.preflight import Room, too_small
from builder.pipeline.publish import push_by_digest
from builder.plan.layers import too_large
from builder.report.records import BuildRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

FACTS = load_facts()
GIB = 1 << 30


@pytest.mark.parametrize("case_id", ["g2-11-repo-release-404"])
@pytest.mark.parametrize("family", ["rocm-pytorch", "wheel", "amd-wheel", "rocm-dev"])
def test_a_distribution_that_a_release_is_not_made_for_is_refused_with_both_names(
    case_id: str, family: str
) -> None:
    flavour = "devel" if family == "rocm-dev" else "runtime"
    wanted = Combination("a", family, "ubuntu20.04", "7.2.1", "2.9.1", "3.12", flavour)
    verdicts = judge(wanted, FACTS)
    assert rejected(verdicts)
    assert "7.2.1" in verdicts[-1].reason


@pytest.mark.parametrize("case_id", ["g2-12-layout-change"])
def test_each_release_has_its_provider_and_an_unknown_one_is_refused(case_id: str) -> None:
    streams = {name: FACTS.rocm_releases[name].stream for name in ("7.2.4", "7.14.0", "10.0.0")}
    assert streams == {"7.2.4": "legacy", "7.14.0": "therock", "10.0.0": "therock"}
    for family in set(FAMILIES) - {"distro"}:
        unknown = Combination("a", family, "ubuntu24.04", "8.8.0", "2.9.1", "3.12", "runtime")
        assert rejected(judge(unknown, FACTS)), family


@pytest.mark.parametrize("case_id", ["g2-19-disk-full"])
def test_a_disk_that_is_too_small_is_told_with_what_is_free_and_what_an_image_takes(
    case_id: str,
) -> None:
    problem = too_small(Room(Path("/data"), 38 * GIB, None), [cell(unpacked_bytes=45 * GIB)])
    assert problem is not None
    assert problem.code == "DISK_TOO_SMALL"
    check_told(problem, ("38.0 GiB", "45.0 GiB", "/data"))
    assert too_small(Room(Path("/data"), 140 * GIB, None), [cell(unpacked_bytes=45 * GIB)]) is None


def layers(*gib: float) -> list[Descriptor]:
    return [Descriptor(LAYER_GZIP, Digest.of(str(one).encode()), int(one * GIB)) for one in gib]


def codes_at(host: str, found: Sequence[Descriptor]) -> list[str]:
    return [one.code for one in too_large(found, host, FACTS.registry_limits, where="cell")]


@pytest.mark.parametrize("case_id", ["g2-20-layer-limit"])
def test_a_layer_beyond_the_limit_of_its_registry_is_named(case_id: str) -> None:
    found = layers(0.03, 11.4, 3.2)
    (problem,) = too_large(found, "ghcr.io", FACTS.registry_limits, where="cell")
    assert problem.code == "LAYER_TOO_LARGE"
    check_told(problem, ("layer 2 of 3", "12.2 GB", "10 GB", found[1].digest))
    assert codes_at("localhost:5000", found) == []
    assert codes_at("1234.dkr.ecr.eu-west-1.amazonaws.com", found) == []
    assert codes_at("1234.dkr.ecr.eu-west-1.amazonaws.com:443", layers(60)) == ["LAYER_TOO_LARGE"]


@pytest.mark.parametrize("case_id", ["g2-20-layer-limit"])
def test_nothing_is_sent_of_an_image_with_such_a_layer(case_id: str, tmp_path: Path) -> None:
    one = session(project(tmp_path))
    config = Descriptor.of(b"{}", EMPTY)
    manifest = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {**config.to_json(), "mediaType": CONFIG},
            "layers": [each.to_json() for each in layers(11.4)],
        }
    )
    digest = Digest.of(manifest)
    blob = Layout(one.workspace.layout).blob_path(digest)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(manifest)
    built = BuildRecord(
        cell=CELL.id,
        step="build",
        finished=one.tools.now(),
        seconds=1,
        digest=digest,
        inputs={},
        sources={},
        size=1,
    )
    with serving(FakeRegistry()) as server, Registry(server.host) as registry:
        registry.host = "ghcr.io"
        with pytest.raises(RefusedError) as caught:
            push_by_digest(one, built, registry)
        assert not server.calls
    assert caught.value.problems[0].code == "LAYER_TOO_LARGE"
