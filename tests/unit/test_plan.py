from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import ARCHIVE, CELL, LOCKED, cell

from builder.matrix.cells import Base, Policy, Waiver
from builder.oci import Digest
from builder.plan.bake import Places, bake_file, base_source, context_name, target, target_name
from builder.plan.gate import judge, worst
from builder.plan.inputs import AssetFile, Inputs, assets_digest
from builder.plan.staleness import Built, build_reasons

if TYPE_CHECKING:
    from builder.matrix.lock import LockedCell

CONTEXT = {"Dockerfile": b"FROM a\n", "cell.json": b"{}\n"}
ASSETS = {
    "rootfs": {"usr/a": AssetFile(b"a", True), "usr/b": AssetFile(b"b", False)},
    "selftest": {"cli.py": AssetFile(b"pass", False)},
}
INPUTS = Inputs.of(context=CONTEXT, assets=ASSETS, locked=LOCKED)
PLACES = Places(Path("/s/context"), (("rootfs", Path("/s/rootfs")),), Path("/b"), Path("/e"))
TODAY = date(2026, 12, 1)


def inputs(
    context: dict[str, bytes] = CONTEXT,
    assets: dict[str, dict[str, AssetFile]] = ASSETS,
    locked: LockedCell = LOCKED,
) -> Inputs:
    return Inputs.of(context=context, assets=assets, locked=locked)


CHANGES = [
    (inputs(context={**CONTEXT, "Dockerfile": b"FROM b\n"}), "context/Dockerfile"),
    (inputs(context={**CONTEXT, "cell.json": b"{ }\n"}), "context/cell.json"),
    (inputs(context={**CONTEXT, "uv.toml": b""}), "context/uv.toml"),
    (inputs(assets={**ASSETS, "rootfs": {"usr/a": AssetFile(b"a", True)}}), "rootfs"),
    (
        inputs(assets={**ASSETS, "rootfs": {**ASSETS["rootfs"], "usr/b": AssetFile(b"b", True)}}),
        "rootfs",
    ),
    (inputs(assets={**ASSETS, "selftest": {"cli.py": AssetFile(b"", False)}}), "selftest"),
    (inputs(assets={**ASSETS, "selftest": {"c.py": AssetFile(b"pass", False)}}), "selftest"),
    (inputs(locked=replace(LOCKED, base=Digest.of(b"new"))), "lock/base"),
    (inputs(locked=replace(LOCKED, origin="registry")), "lock/base"),
    (inputs(locked=replace(LOCKED, epoch=LOCKED.epoch + 1)), "lock/epoch"),
    (
        inputs(locked=replace(LOCKED, archives=(replace(ARCHIVE, sha256=Digest.of(b"n")),))),
        "lock/archives",
    ),
]


@pytest.mark.parametrize(("changed", "part"), CHANGES)
def test_each_part_changes_the_digest_and_is_told_by_name(changed: Inputs, part: str) -> None:
    assert changed.digest != INPUTS.digest
    assert changed.changed_since(INPUTS) == (part,)
    assert INPUTS.changed_since(changed) == (part,)


def test_all_changes_give_different_digests() -> None:
    assert len({changed.digest for changed, _ in CHANGES}) == len(CHANGES)


@given(st.permutations(list(CONTEXT)), st.permutations(list(ASSETS["rootfs"])), st.booleans())
def test_order_does_not_matter(names: list[str], files: list[str], swapped: bool) -> None:
    rootfs = {name: ASSETS["rootfs"][name] for name in files}
    folders = {"rootfs": rootfs, "selftest": ASSETS["selftest"]}
    if swapped:
        folders = dict(reversed(folders.items()))
    again = inputs(context={name: CONTEXT[name] for name in names}, assets=folders)
    assert again == INPUTS
    assert again.digest == INPUTS.digest
    assert again.changed_since(INPUTS) == ()


def test_one_moment_in_two_time_zones_is_one_input() -> None:
    local = ARCHIVE.date.astimezone(datetime.now(UTC).astimezone().tzinfo)
    assert inputs(locked=replace(LOCKED, archives=(replace(ARCHIVE, date=local),))) == INPUTS


@given(
    st.dictionaries(
        st.text(max_size=3), st.builds(AssetFile, st.binary(max_size=3), st.booleans())
    ),
    st.dictionaries(
        st.text(max_size=3), st.builds(AssetFile, st.binary(max_size=3), st.booleans())
    ),
)
def test_folders_have_one_digest_only_when_they_are_equal(
    one: dict[str, AssetFile], other: dict[str, AssetFile]
) -> None:
    assert (assets_digest(one) == assets_digest(other)) == (one == other)


def reasons(now: Inputs, *, then: dict[str, str] | None = None, present: bool = True) -> list[str]:
    built = Built(INPUTS, then or {}, present=present)
    return list(build_reasons(now, built, sources={"distro.Dockerfile.j2": "2"}))


def test_a_cell_without_a_build_is_stale() -> None:
    assert build_reasons(INPUTS, None, sources={}) == ("never built",)


def test_a_current_image_gives_no_reason() -> None:
    assert reasons(INPUTS) == []


def test_an_image_that_is_gone_is_a_reason() -> None:
    assert reasons(INPUTS, present=False) == ["the built image is no longer in the local layout"]


def test_what_moved_is_told_in_words() -> None:
    locked = replace(LOCKED, base=Digest.of(b"new"), archives=(), epoch=7)
    assert reasons(inputs(locked=locked)) == ["archive moved", "base moved", "epoch changed"]
    assert reasons(CHANGES[3][0]) == ["files in images/rootfs changed"]
    assert reasons(CHANGES[5][0]) == ["the self-test changed"]
    assert reasons(CHANGES[2][0]) == ["context/uv.toml changed"]


def test_a_changed_dockerfile_names_the_template_that_did_it() -> None:
    changed = CHANGES[0][0]
    assert reasons(changed, then={"distro.Dockerfile.j2": "1"}) == [
        "template distro.Dockerfile.j2 changed"
    ]
    assert reasons(changed, then={"distro.Dockerfile.j2": "2"}) == [
        "what the matrix and the facts say of it changed"
    ]


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("docker.io/library/debian:13", "debian:13"),
        ("debian:13", "debian:13"),
        ("docker.io/library/debian:latest", "debian"),
        ("debian", "debian"),
        ("docker.io/rocm/pytorch:rocm7.2", "rocm/pytorch:rocm7.2"),
        ("rocm/pytorch:rocm7.2", "rocm/pytorch:rocm7.2"),
        ("ghcr.io/library/debian:13", "ghcr.io/library/debian:13"),
        ("localhost:5000/base:1", "localhost:5000/base:1"),
        (f"docker.io/library/debian:13@{LOCKED.base}", "debian:13"),
    ],
)
def test_a_context_has_the_short_name_that_buildkit_looks_up(ref: str, name: str) -> None:
    assert context_name(ref) == name


def test_the_base_is_a_digest_from_where_the_lock_says() -> None:
    layout = Path("/srv/layout")
    assert base_source(CELL, LOCKED, layout) == f"oci-layout:///srv/layout@{LOCKED.base}"
    one = cell(base=Base("rocm-pytorch", "rocm/pytorch:rocm7.2"))
    remote = replace(LOCKED, origin="registry")
    assert (
        base_source(one, remote, layout) == f"docker-image://docker.io/rocm/pytorch@{LOCKED.base}"
    )


def test_a_target_has_everything_the_build_needs() -> None:
    found = target(CELL, LOCKED, INPUTS.digest, PLACES, image="ourorg/rocm-torch")
    assert found["context"] == "/s/context"
    assert found["contexts"] == {
        "rootfs": "/s/rootfs",
        "debian:13": f"oci-layout:///b@{LOCKED.base}",
    }
    assert found["args"] == {"SOURCE_DATE_EPOCH": "1795913593"}
    assert found["platforms"] == ["linux/amd64"]
    words = found["output"][0].split(",")
    assert {"type=oci", "tar=false", "dest=/e", "rewrite-timestamp=true"} <= set(words)
    assert f"name=ourorg/rocm-torch:{CELL.id}" in words
    assert found["labels"] == {
        "io.rocm-torch.inputs": INPUTS.digest,
        "org.opencontainers.image.base.digest": LOCKED.base,
        "org.opencontainers.image.created": "2026-11-29T00:53:13Z",
    }


def test_the_bake_file_is_the_same_in_any_order_and_has_no_dots_in_names() -> None:
    named = [
        (target_name(one), target(one, LOCKED, INPUTS.digest, PLACES, image="a/b"))
        for one in (CELL, cell(id="cpu-torch1.13.1-py311-debian12"))
    ]
    document = bake_file(named)
    assert json.dumps(document) == json.dumps(bake_file(reversed(named)))
    assert document["group"]["default"]["targets"] == [
        "cpu-torch1_13_1-py311-debian12",
        "cpu-torch2_6_0-py313-debian13",
    ]


LEVELS = st.sampled_from(("smoke", "gpu", "bench"))
WAIVERS = st.builds(
    Waiver,
    st.lists(LEVELS).map(tuple),
    st.just("no machine"),
    st.integers(-2, 2).map(lambda days: TODAY + timedelta(days=days)),
)
POLICIES = st.builds(
    Policy,
    st.lists(LEVELS, unique=True).map(tuple),
    st.one_of(st.none(), st.integers(0, 20)),
    st.one_of(st.none(), WAIVERS),
)
VERDICTS = st.dictionaries(LEVELS, st.sampled_from(("pass", "fail", "incomplete", "odd", "")))


@given(POLICIES, VERDICTS, st.integers(0, 20))
def test_the_gate_opens_only_when_each_level_passed_or_is_waived_in_time(
    policy: Policy, verdicts: dict[str, str], size: int
) -> None:
    decision = judge(policy, verdicts, size=size, today=TODAY)
    waiver = policy.waiver
    waived = waiver.levels if waiver is not None and waiver.until >= TODAY else ()
    open_levels = [
        level
        for level in policy.levels
        if verdicts.get(level) != "pass" and (verdicts.get(level) == "fail" or level not in waived)
    ]
    too_large = policy.size_budget_bytes is not None and size > policy.size_budget_bytes
    assert (decision.outcome == "pass") == (not open_levels and not too_large)
    assert bool(decision.reasons) == (decision.outcome != "pass")
    failed = too_large or any(verdicts.get(level) == "fail" for level in policy.levels)
    assert (decision.outcome == "fail") == failed


def test_a_level_that_was_not_run_is_incomplete_and_said() -> None:
    decision = judge(Policy(("smoke", "gpu")), {"smoke": "pass"}, size=1, today=TODAY)
    assert (decision.outcome, decision.reasons) == ("incomplete", ("level gpu is not run",))


def test_a_waiver_holds_on_its_last_day_and_not_after() -> None:
    policy = Policy(("gpu",), waiver=Waiver(("gpu",), "no machine", TODAY))
    assert judge(policy, {}, size=1, today=TODAY).waived == ("gpu",)
    assert judge(policy, {}, size=1, today=TODAY + timedelta(days=1)).outcome == "incomplete"


@pytest.mark.parametrize(
    ("verdicts", "level"),
    [
        ((), None),
        (("incomplete",), "incomplete"),
        (("incomplete", "pass"), "pass"),
        (("pass", "fail"), "fail"),
    ],
)
def test_one_gpu_family_that_passed_is_enough_and_none_may_fail(
    verdicts: tuple[str, ...], level: str | None
) -> None:
    assert worst(verdicts) == level


def test_a_failure_is_never_waived() -> None:
    policy = Policy(("gpu",), waiver=Waiver(("gpu",), "no machine", TODAY))
    assert judge(policy, {"gpu": "fail"}, size=1, today=TODAY).outcome == "fail"


def test_an_image_may_be_as_large_as_its_budget() -> None:
    policy = Policy((), size_budget_bytes=10)
    assert judge(policy, {}, size=10, today=TODAY).outcome == "pass"
    assert "11 bytes" in judge(policy, {}, size=11, today=TODAY).reasons[0]
