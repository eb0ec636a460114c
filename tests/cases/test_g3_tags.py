"""Field cases of group G3 that concern tags: each test carries the id of the report it covers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from registry_images import store_image
from registry_server import FakeRegistry, serving
from samples import cell

from builder.engines.registry import Patience, Registry
from builder.matrix.cells import Ranking
from builder.matrix.checks import tie_problems
from builder.matrix.tags import dated_tag, orphans, resolve_owners
from builder.oci import INDEX, Digest, Reference
from builder.pipeline.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = "acme/rocm"


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as running:
        yield running


def case(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case_id", [name])


def store_index(server: FakeRegistry, tag: str, *children: Digest) -> Digest:
    entries = [
        {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": child, "size": 9}
        for child in children
    ]
    body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
    server.store(REPOSITORY, tag, INDEX, body)
    return Digest.of(body)


@case("g3-06-cleanup-children")
@pytest.mark.parametrize("nested", [False, True])
def test_an_index_whose_child_was_cleaned_away_is_named_with_the_child(
    case_id: str, server: FakeRegistry, nested: bool
) -> None:
    attestation, gone = store_image(server, REPOSITORY, salt="att"), Digest.of(b"amd64")
    inner = store_index(server, "rocm", gone, attestation)
    if nested:
        store_index(server, "rocm", inner)
    with Registry(server.host, patience=Patience(attempts=1)) as registry:
        found = verify(registry, Reference.parse(f"{server.host}/{REPOSITORY}:rocm"))
    (check,) = found.checks
    assert not found.holds
    assert check.code == "DANGLING_INDEX"
    assert gone in check.detail
    assert attestation not in check.detail


@case("g3-07-renamed-repo")
def test_an_alias_that_the_plan_does_not_make_any_more_is_named(case_id: str) -> None:
    one = cell(flavour="devel")
    owners = {"latest-amd": one, "cpu": one}
    kept = [
        dated_tag(one, 1_795_913_593, Digest.of(b"x")),
        dated_tag(cell(), 1_795_913_593, Digest.of(b"y")),
        f"sha256-{'0' * 64}",
        "candidate-20261215-101-1-abcdef01",
        "cpu-sif",
    ]
    assert orphans(["latest-rocm", "latest-amd", "cpu", *kept], owners) == ("latest-rocm",)


@case("g3-10-tag-grammar")
@pytest.mark.parametrize("axis", ["distro", "python"])
def test_two_cells_with_one_tag_are_named_with_the_axis_that_differs(
    case_id: str, axis: str
) -> None:
    values = {"distro": ("debian13", "ubuntu24.04"), "python": ("3.12", "3.13")}[axis]
    ranking = Ranking(default=True)
    cells = [
        cell(id=f"cell-{value}", rocm="7.2.4", ranking=ranking, **{axis: value}) for value in values
    ]
    told = " ".join(map(str, tie_problems(resolve_owners(cells).ties, str)))
    for word in ("TAG_CLAIMED_TWICE", "7.2", axis, *(one.id for one in cells)):
        assert word in told


@case("g3-10-tag-grammar")
def test_patches_of_one_series_do_not_compete_for_its_tag(case_id: str) -> None:
    cells = [
        cell(id=f"rocm{rocm}-torch2.6.0-py313-debian13", rocm=rocm)
        for rocm in ("7.2.1", "7.2.4", "7.14.0")
    ]
    owners = resolve_owners(cells).tags
    assert owners["7.2-py313"].rocm == "7.2.4"
    assert owners["7.2.1-torch2.6.0-py313-debian13"].rocm == "7.2.1"
