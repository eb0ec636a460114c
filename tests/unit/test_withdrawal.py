"""Rollback and yank against a registry over HTTP, and one publisher at a time."""

from __future__ import annotations

import multiprocessing
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest
from registry_images import store_image
from registry_server import FakeRegistry, serving
from samples import project
from test_pipeline_steps import session as session_of

from builder.engines.registry import Patience, Registry
from builder.errors import BadCallError, CouldNotError, RefusedError
from builder.oci import MANIFEST, SIF_CONFIG, SIF_LAYER, Descriptor, Digest, Reference
from builder.pipeline.candidate import candidate_tag
from builder.pipeline.prune import ended_leases, remove_leases
from builder.pipeline.publish_lock import one_publisher
from builder.pipeline.sif_publish import pull_sif, sif_manifest
from builder.pipeline.withdrawal import check_not_yanked, rollback, yank

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event
    from pathlib import Path

    from builder.pipeline.session import Session

REPOSITORY = "ourorg/rocm-torch"


@pytest.fixture(params=[False, True], ids=["fallback", "api"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeRegistry]:
    with serving(FakeRegistry(referrers_api=request.param)) as running:
        yield running


@pytest.fixture
def registry(server: FakeRegistry) -> Iterator[Registry]:
    with Registry(server.host, patience=Patience(attempts=1)) as client:
        yield client


@pytest.fixture
def ours(tmp_path: Path) -> Session:
    return session_of(project(tmp_path / "copy"))


def release(server: FakeRegistry, salt: str, *tags: str) -> tuple[Digest, str]:
    """Store an image as a release left it and return its digest and its dated tag."""
    digest = store_image(server, REPOSITORY, *tags, salt=salt)
    dated = f"cpu-torch2.6.0-py313-debian13-20261129-{digest.hex[:8]}"
    store_image(server, REPOSITORY, dated, salt=salt)
    return digest, dated


def attached_sif(registry: Registry, image: Digest) -> Digest:
    """Attach an artifact of the form of a SIF to an image and return its digest."""
    (subject, _), content = registry.get_manifest(REPOSITORY, image), f"SIF of {image}".encode()
    file, config = Descriptor.of(content, SIF_LAYER), Descriptor.of(b"{}", SIF_CONFIG)
    registry.push_blob(REPOSITORY, file, content)
    registry.push_blob(REPOSITORY, config, b"{}")
    body = sif_manifest(file, subject, "x.sif")
    artifact = Descriptor(MANIFEST, Digest.of(body), len(body), artifact_type=SIF_CONFIG)
    registry.attach_manifest(REPOSITORY, subject, artifact, body)
    return artifact.digest


def named(registry: Registry, tag: str) -> Digest | None:
    found = registry.head(REPOSITORY, tag)
    return found.digest if found else None


def test_a_rollback_moves_the_named_tags_and_no_other(
    server: FakeRegistry, registry: Registry, ours: Session
) -> None:
    old, dated = release(server, "old")
    new, _ = release(server, "new", "cpu", "cpu-py313")
    (change,) = rollback(ours, registry, ["cpu"], dated)
    assert (change.tag, change.before, change.after) == ("cpu", new, old)
    assert (named(registry, "cpu"), named(registry, "cpu-py313")) == (old, new)


def test_a_rollback_needs_a_released_image_and_a_moving_tag(
    server: FakeRegistry, registry: Registry, ours: Session
) -> None:
    _, dated = release(server, "old", "cpu")
    candidate = store_image(server, REPOSITORY, salt="never released")
    with pytest.raises(RefusedError, match="NOT_RELEASED"):
        rollback(ours, registry, ["cpu"], candidate)
    leased = candidate_tag("101-1", candidate, date(2026, 12, 14))
    store_image(server, REPOSITORY, leased, salt="never released")
    for target in (leased, candidate):
        with pytest.raises(RefusedError, match="NOT_RELEASED"):
            rollback(ours, registry, ["cpu"], target)
    for target in ("no-such-tag", "not a tag"):
        with pytest.raises(BadCallError, match="NO_SUCH_RELEASE"):
            rollback(ours, registry, ["cpu"], target)
    with pytest.raises(BadCallError, match="NOT_A_MOVING_TAG"):
        rollback(ours, registry, [dated], dated)


def test_what_was_yanked_is_not_tagged_again_and_says_why(
    server: FakeRegistry, registry: Registry, ours: Session
) -> None:
    good, dated = release(server, "good")
    bad, bad_dated = release(server, "bad", "cpu")
    with pytest.raises(RefusedError, match="YANK_LEAVES_TAGS"):
        yank(ours, registry, bad_dated, reason="wrong numbers", to=None)
    assert named(registry, "cpu") == bad
    check_not_yanked(registry, REPOSITORY, bad)
    (change,) = yank(ours, registry, bad_dated, reason="wrong numbers", to=dated)
    assert (change.tag, change.after) == ("cpu", good)
    assert (named(registry, "cpu"), named(registry, bad_dated)) == (good, bad)
    with pytest.raises(RefusedError, match="wrong numbers"):
        check_not_yanked(registry, REPOSITORY, bad)
    with pytest.raises(RefusedError, match="YANKED"):
        rollback(ours, registry, ["cpu"], bad_dated)
    check_not_yanked(registry, REPOSITORY, good)


def test_the_tag_of_a_sif_goes_with_its_image_and_never_stays_with_a_withdrawn_one(
    server: FakeRegistry, registry: Registry, ours: Session
) -> None:
    good, dated = release(server, "good")
    bad, bad_dated = release(server, "bad", "cpu")
    sif = attached_sif(registry, bad)
    registry.tag(REPOSITORY, sif, "cpu-sif")
    changes = yank(ours, registry, bad_dated, reason="wrong numbers", to=dated)
    assert {(one.tag, one.before, one.after) for one in changes} == {
        ("cpu", bad, good),
        ("cpu-sif", sif, None),
    }
    assert named(registry, "cpu-sif") is None
    reference = Reference.parse(f"{registry.host}/{REPOSITORY}@{sif}")
    with pytest.raises(RefusedError, match="wrong numbers"):
        pull_sif(ours, registry, reference, ours.workspace.root / "x.sif")
    other = attached_sif(registry, good)
    registry.tag(REPOSITORY, sif, "cpu-sif")
    assert rollback(ours, registry, ["cpu"], dated)[-1].after == other


def test_prune_takes_away_tags_past_their_lease_and_keeps_the_images(
    server: FakeRegistry, registry: Registry, ours: Session
) -> None:
    digest, dated = release(server, "one", "cpu")
    today = ours.tools.now().date()
    ended = candidate_tag("99-1", digest, today - timedelta(days=1))
    leased = candidate_tag("100-1", digest, today)
    for tag in (ended, leased):
        store_image(server, REPOSITORY, tag, salt="one")
    garbage = ended_leases(ours, registry)
    assert [item.name for item in garbage] == [ended]
    remove_leases(ours, registry, garbage)
    assert set(registry.list_tags(REPOSITORY)) == {dated, "cpu", leased}
    assert named(registry, "cpu") == digest
    with pytest.raises(CouldNotError, match="TAG_STAYS"):
        remove_leases(ours, registry, garbage)


def _hold(folder: Path, copy: Path, entered: Event, leave: Event) -> None:
    with one_publisher(session_of(copy).tools, "host/repo", folder=folder):
        entered.set()
        leave.wait(60)


def test_a_second_process_waits_until_the_first_has_published(
    tmp_path: Path, ours: Session
) -> None:
    spawn = multiprocessing.get_context("spawn")
    entered, leave = spawn.Event(), spawn.Event()
    words = (tmp_path / "locks", ours.workspace.root, entered, leave)
    other = spawn.Process(target=_hold, args=words)
    other.start()
    try:
        assert entered.wait(60)
        ours.tools.stopping.set()  # whoever has to wait is told to stop
        with (
            pytest.raises(CouldNotError, match="STOPPED"),
            one_publisher(ours.tools, "host/repo", folder=tmp_path / "locks"),
        ):
            pass
        with one_publisher(ours.tools, "host/other", folder=tmp_path / "locks"):
            pass
    finally:
        leave.set()
        other.join(60)
    with (
        one_publisher(ours.tools, "host/repo", folder=tmp_path / "locks"),
        one_publisher(ours.tools, "host/repo", folder=tmp_path / "locks"),
    ):
        pass  # two threads of one process share it
