"""Field cases of group G8, matrix and CI: each test carries the id of the report that it covers."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest
from registry_images import store_image
from registry_server import FakeRegistry, serving
from samples import CELL, ROOT, cell

from builder.engines.process import Command
from builder.engines.registry import Attachment, Patience, Registry
from builder.errors import CouldNotError, RefusedError
from builder.facts import load_facts
from builder.matrix.cells import Ranking
from builder.matrix.load import load_matrix
from builder.matrix.tags import resolve_owners
from builder.matrix.versions import compare, resolve, version_key
from builder.oci import RUN_RECORD, Digest
from builder.pipeline.candidate import candidate_tag, expired
from builder.pipeline.tagging import SEQUENCE, Terms, set_tags
from builder.plan.ci.chunks import (
    MAX_JOBS,
    MAX_OUTPUT_BYTES,
    CiCell,
    CiPlan,
    as_variable,
    chunk_numbers,
    chunk_outputs,
    chunked,
)
from builder.plan.moving import Age
from builder.report.verification import check_tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.matrix.cells import Cell

REPOSITORY = "acme/rocm-torch"
DATED = "cpu-torch2.6.0-py313-debian13-20261129-{}"


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as running:
        yield running


@pytest.fixture
def registry(server: FakeRegistry) -> Iterator[Registry]:
    with Registry(server.host, patience=Patience(attempts=1)) as client:
        yield client


def case(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case_id", [name])


def ci_cells(number: int) -> list[CiCell]:
    return [CiCell(f"rocm7.2.4-torch2.10.{n}-py312-ubuntu24.04") for n in range(number)]


@case("g8-01-yaml-310")
def test_versions_without_quotes_are_named_with_line_and_spelling(case_id: str) -> None:
    text = """\
version: 1
image: acme/rocm-torch
lanes:
  one:
    purpose: a case
    base: wheel
    python: [3.9, 3.10]
    rocm: [7.0, 7.10, 7.2.1]
    torch: [2.10]
    distro: [22.04]
"""
    with pytest.raises(RefusedError) as caught:
        load_matrix(text, "matrix.yaml", load_facts())
    unquoted = [one for one in caught.value.problems if one.code == "UNQUOTED_VERSION"]
    assert len(unquoted) == 6
    told = "\n".join(str(one) for one in unquoted)
    for word in ('"3.10"', '"7.10"', '"2.10"', "22.04", *(f":{n}:" for n in (7, 8, 9, 10))):
        assert word in told


@case("g8-03-256-limit")
@pytest.mark.parametrize("cells", [0, 1, 200, 201, 256, 257, 384, 1000])
def test_chunks_lose_no_cell_and_none_is_larger_than_a_matrix_may_be(
    case_id: str, cells: int
) -> None:
    made = ci_cells(cells)
    chunks = chunked(made)
    assert [one for chunk in chunks for one in chunk] == sorted(made, key=lambda one: one.id)
    assert all(0 < len(chunk) <= 200 < MAX_JOBS for chunk in chunks)
    assert len(chunks) == -(-cells // 200)
    assert chunked(reversed(made)) == chunks


@case("g8-04-output-1mib")
def test_outputs_of_3000_cells_have_ids_only_and_the_rest_is_in_the_file(case_id: str) -> None:
    labels = ("self-hosted", "linux", "x" * 60)
    cells = [
        replace(one, gfx="gfx942", runner=labels, gpu_levels=("gpu",)) for one in ci_cells(3000)
    ]
    plan = CiPlan(chunked(cells))
    outputs = [chunk_numbers(plan), *(chunk_outputs(chunk) for chunk in plan.chunks)]
    assert all(sum(map(len, one.values())) < MAX_OUTPUT_BYTES for one in outputs)
    rows = [row for one in outputs[1:] for row in json.loads(one["build"])]
    assert len(rows) == 3000
    assert {tuple(row) for row in rows} == {("cell",)}
    assert CiPlan.from_text(plan.to_text(), "plan.json") == plan


@case("g8-04-output-1mib")
def test_outputs_beyond_the_limit_are_an_error_and_not_dropped(case_id: str) -> None:
    with pytest.raises(RefusedError, match="900000"):
        chunk_outputs(replace(one, id=one.id + "x" * 900) for one in ci_cells(1000))


@case("g8-05-env-128k")
def test_a_plan_too_large_for_the_environment_is_refused_and_the_file_named(case_id: str) -> None:
    plan = CiPlan(chunked(ci_cells(2000)))
    with pytest.raises(RefusedError) as caught:
        as_variable("PLAN", plan)
    (problem,) = caught.value.problems
    assert problem.code == "PLAN_TOO_LARGE_FOR_ENV"
    assert "131072" in str(problem)
    assert "--plan-file" in str(problem)
    small = as_variable("PLAN", CiPlan(chunked(ci_cells(10))))
    assert small.startswith("PLAN={")
    assert "\n" not in small


@case("g8-05-env-128k")
@pytest.mark.parametrize("over", [False, True])
def test_the_limit_is_that_of_this_kernel_and_our_own_calls_keep_it(
    case_id: str, over: bool
) -> None:
    word = "x" * (131_071 + over)
    if over:
        with pytest.raises(CouldNotError, match="131072"):
            Command(("/bin/true", word), timeout=5)
        with pytest.raises(OSError, match="Argument list too long"):
            os.posix_spawn("/bin/true", ["/bin/true", word], {})
    else:
        Command(("/bin/true", word), timeout=5)
        child = os.posix_spawn("/bin/true", ["/bin/true", word], {})
        assert os.waitpid(child, 0)[1] == 0


@case("g8-06-string-compare")
@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        ("2.12.1", "2.9.0", 1),
        ("7.14", "7.2", 1),
        ("10.0", "7.14", 1),
        ("3.9", "3.10", -1),
        ("7.2", "7.2.0", 0),
        ("2.9.0rc1", "2.9.0", -1),
        ("v2.8.1-11", "v2.8.1-9", 1),
        ("2.7.1+rocm6.2.4", "2.7.1", 1),
    ],
)
def test_versions_compare_as_versions(case_id: str, one: str, other: str, want: int) -> None:
    assert (compare(one, other), compare(other, one)) == (want, -want)


@case("g8-06-string-compare")
def test_no_template_compares_text_by_order(case_id: str) -> None:
    import jinja2
    from jinja2 import nodes

    ordered = {"lt", "lteq", "gt", "gteq"}
    paths = sorted((ROOT / "templates").rglob("*.j2"))
    assert paths
    for path in paths:
        parsed = jinja2.Environment(autoescape=True).parse(path.read_text("utf-8"))
        for found in parsed.find_all(nodes.Compare):
            number = any(
                isinstance(one, nodes.Const) and isinstance(one.value, int)
                for one in (found.expr, *(operand.expr for operand in found.ops))
            )
            assert number or not {operand.op for operand in found.ops} & ordered, path


@case("g8-07-newest-by-max")
def test_the_newest_is_by_number_and_the_default_lane_has_the_widest_tags(case_id: str) -> None:
    candidates = ("7.2.0", "7.14.0", "10.0.0")
    assert max(candidates, key=version_key) == "10.0.0"
    assert resolve("7.2", candidates) == "7.2.0"

    def of(rocm: str, lane: str, default: bool) -> Cell:
        name = f"rocm{rocm}-torch2.6.0-py313-debian13"
        ranking = Ranking(default=default)
        return cell(id=name, rocm=rocm, lane=lane, ranking=ranking)

    cells = [of(rocm, "all", True) for rocm in candidates]
    assert resolve_owners(cells).tags["latest"].rocm == "10.0.0"
    mixed = [of("7.2.0", "stable", True), of("7.14.0", "new", False), of("10.0.0", "new", False)]
    assert resolve_owners(mixed).tags["latest"].rocm == "7.2.0"


@case("g8-08-commit-tag-copied")
def test_each_runs_own_tag_names_its_own_image_whatever_a_shared_tag_names(
    case_id: str, server: FakeRegistry, registry: Registry
) -> None:
    one = store_image(server, REPOSITORY, "v1", salt="A")
    two = store_image(server, REPOSITORY, "v1", salt="B")
    for digest, name in ((one, "a"), (two, "b")):
        set_tags(registry, REPOSITORY, digest, [name], ours=age(), terms=Terms())
    assert (named(registry, "a"), named(registry, "b")) == (one, two)


@case("g8-09-cleanup-other-run")
def test_a_leased_tag_names_its_run_and_only_ended_leases_are_found(case_id: str) -> None:
    digest, today = Digest.of(b"image"), date(2026, 12, 1)
    ours = candidate_tag("101-1", digest, today + timedelta(days=14))
    other = candidate_tag("102-1", digest, today + timedelta(days=14))
    assert ours != other
    old = candidate_tag("90-2", digest, today - timedelta(days=1))
    last_day = candidate_tag("91-1", digest, today)
    tags = [ours, other, old, last_day, "latest", "candidate-of-somebody-else"]
    assert expired(tags, today) == (old,)


@case("g8-09-cleanup-other-run")
def test_a_tag_that_is_taken_away_leaves_the_image_and_all_other_tags(
    case_id: str, server: FakeRegistry, registry: Registry
) -> None:
    journal, other = "candidate-20261215-101-1-aa", "candidate-20261215-102-1-aa"
    digest = store_image(server, REPOSITORY, journal, other, "cpu")
    assert registry.delete_tag(REPOSITORY, journal)
    assert not registry.delete_tag(REPOSITORY, journal)
    assert set(registry.list_tags(REPOSITORY)) == {other, "cpu"}
    assert named(registry, digest) == digest
    with pytest.raises(ValueError, match="not a tag"):
        registry.delete_tag(REPOSITORY, digest)


@case("g8-10-alias-not-updated")
def test_an_alias_that_stayed_behind_its_release_is_named(case_id: str) -> None:
    old, new = Digest.of(b"old"), Digest.of(b"new")
    tags = [DATED.format(old.hex[:8]), DATED.format(new.hex[:8]).replace("1129", "1130"), "cpu"]
    newest = [tags[1]]

    def told(digest: Digest) -> str | None:
        owner = CELL.id
        (found,) = check_tag("cpu", digest, owner, all_tags=tags, owner=owner, newest=newest)
        return found.code if found.state != "ok" else None

    assert told(old) == "ALIAS_STALE"
    assert told(new) is None


def age(sequence: int | None = None, torch: str = "2.6.0", epoch: int = 1_795_910_400) -> Age:
    return Age(sequence, None, torch, epoch)


def named(registry: Registry, tag: str) -> Digest | None:
    found = registry.head(REPOSITORY, tag)
    return found.digest if found else None


def publish(registry: Registry, digest: Digest, ours: Age, terms: Terms) -> tuple[str, ...]:
    """Set tags as the step does, after the number of the run was attached; return those held."""
    subject = registry.get_manifest(REPOSITORY, digest)[0]
    if terms.sequence is not None:
        notes = {SEQUENCE: str(terms.sequence)}
        mark = Attachment(RUN_RECORD, b"{}", RUN_RECORD, notes)
        registry.attach_all(REPOSITORY, subject, (mark,))
    dated = DATED.format(digest.hex[:8])
    moved = set_tags(registry, REPOSITORY, digest, [dated, "cpu"], ours=ours, terms=terms)
    return tuple(tag for tag, _ in moved.held)


@case("g8-11-older-run-finishes-last")
@pytest.mark.parametrize("api", [False, True])
def test_an_older_run_that_ends_last_leaves_the_alias_to_the_newer(
    case_id: str, server: FakeRegistry, registry: Registry, api: bool
) -> None:
    server.referrers_api = api
    seven = store_image(server, REPOSITORY, salt="7")
    eight = store_image(server, REPOSITORY, salt="8")
    assert publish(registry, eight, age(8), Terms(8)) == ()
    assert publish(registry, seven, age(7), Terms(7)) == ("cpu",)
    assert named(registry, "cpu") == eight
    assert named(registry, DATED.format(seven.hex[:8])) == seven
    assert publish(registry, seven, age(9), Terms(9)) == ()
    assert named(registry, "cpu") == seven


@case("g8-11-older-run-finishes-last")
@pytest.mark.parametrize(
    ("torch", "created"), [("2.9.0", "2026-11-29T00:00:00Z"), ("2.6.0", "2026-12-24T00:00:00Z")]
)
def test_without_numbers_of_runs_versions_and_epochs_decide_and_force_goes_back(
    case_id: str, server: FakeRegistry, registry: Registry, torch: str, created: str
) -> None:
    newer = store_image(server, REPOSITORY, "cpu", torch=torch, created=created)
    older = store_image(server, REPOSITORY, salt="older")
    assert publish(registry, older, age(), Terms()) == ("cpu",)
    assert named(registry, "cpu") == newer
    assert publish(registry, older, age(), Terms(backwards=True)) == ()
    assert named(registry, "cpu") == older


@case("g8-13-same-tag-repushed")
def test_a_dated_tag_of_another_image_is_refused_before_anything_is_written(
    case_id: str, server: FakeRegistry, registry: Registry
) -> None:
    new = store_image(server, REPOSITORY, salt="new")
    dated = DATED.format(new.hex[:8])
    old = store_image(server, REPOSITORY, dated, salt="old")
    writes = server.count("PUT")
    with pytest.raises(RefusedError) as caught:
        publish(registry, new, age(), Terms())
    (problem,) = caught.value.problems
    assert problem.code == "TAG_EXISTS_OTHER_DIGEST"
    assert "--overwrite" in str(problem)
    assert server.count("PUT") == writes
    assert named(registry, dated) == old
    publish(registry, new, age(), Terms(overwrite=True))
    assert named(registry, dated) == new
