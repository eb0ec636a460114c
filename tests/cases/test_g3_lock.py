"""Field cases of G3 and G2 that concern the lock: each test carries the id of its report."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from registry_server import FakeRegistry, Handler, digest_of, serving
from samples import cell
from wheel_server import LOCAL, other_wheels, serving_wheels, torch_wheels

from builder.engines.process import ProcessRunner
from builder.errors import CouldNotError, RefusedError, RocmTorchError
from builder.matrix.cells import Base, Cell, Wheels
from builder.matrix.nearest import nearest_tags
from builder.matrix.wheel_versions import newest
from builder.oci import Digest
from builder.pipeline.lock import lock_cells
from builder.pipeline.registries import Bases
from builder.pipeline.session import Session
from builder.pipeline.wheels import WheelResolver
from builder.pipeline.workspace import Tools, Workspace
from builder.plan.bake import base_source, context_name
from builder.report.progress import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
PYTORCH = "docker.io/rocm/pytorch"
THERE = "rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.10.0"
GONE = "rocm6.3.1_ubuntu24.04_py3.12_pytorch_release_2.5.0"
MADE = "2026-06-01T10:00:00Z"


def case(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case_id", [name])


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with serving(FakeRegistry()) as running:
        yield running


def session_of(folder: Path, server: FakeRegistry | None, **sections: dict[str, str]) -> Session:
    if server is not None:
        sections["mirrors"] = {"docker.io": f"{server.host}/hub"}
    (folder / "site.yaml").write_text(yaml.safe_dump(sections), "utf-8")
    tools = Tools(ProcessRunner(), lambda: NOON, lambda: 0.0, Silent())
    root = folder / "copy"
    root.mkdir(exist_ok=True)
    lock, matrix = root / "matrix.lock", root / "matrix.yaml"
    return Session(Workspace(root), tools, lock, matrix, site_file=folder / "site.yaml")


def dnf_cell(ref: str, number: int = 0) -> Cell:
    """Return a cell without an apt archive, so that nothing but its registry is asked."""
    return cell(
        id=f"rocm7.2.4-torch2.10.{number}-py312-almalinux9",
        distro="almalinux9",
        package_manager="dnf",
        base=Base("rocm-pytorch", ref),
    )


def store_image(server: FakeRegistry, repository: str, tag: str, created: str = MADE) -> Digest:
    """Store an index of one image that says when it was made, as registries have them."""
    config = json.dumps({"created": created, "os": "linux", "architecture": "amd64"}).encode()
    server.blobs[repository, digest_of(config)] = config
    described = {"mediaType": CONFIG, "digest": digest_of(config), "size": len(config)}
    body = json.dumps({"schemaVersion": 2, "config": described, "layers": []}).encode()
    server.store(repository, digest_of(body), MANIFEST, body)
    child = {
        "mediaType": MANIFEST,
        "digest": digest_of(body),
        "size": len(body),
        "platform": {"os": "linux", "architecture": "amd64"},
    }
    index = json.dumps({"schemaVersion": 2, "manifests": [child]}).encode()
    server.store(repository, tag, "application/vnd.oci.image.index.v1+json", index)
    return Digest(digest_of(index))


def problem_of(error: pytest.ExceptionInfo[RocmTorchError]) -> dict[str, Any]:
    (problem,) = error.value.problems
    return problem.to_json()


@case("g3-03-digest-pin")
def test_from_resolves_to_the_locked_digest_and_only_an_update_moves_it(
    case_id: str, server: FakeRegistry, tmp_path: Path
) -> None:
    ref = f"{PYTORCH}:{THERE}"
    first = store_image(server, "hub/rocm/pytorch", THERE)
    one = dnf_cell(ref)
    lock = lock_cells(session_of(tmp_path, server), (one,))
    locked = lock.cells[one.id]
    assert locked.base == first
    # FROM keeps the name; the build gets this for it.
    assert context_name(ref) == f"rocm/pytorch:{THERE}"
    pinned = base_source(one, locked, tmp_path)
    assert pinned == f"docker-image://docker.io/rocm/pytorch@{first}"
    second = store_image(server, "hub/rocm/pytorch", THERE, "2026-07-01T10:00:00Z")
    assert lock_cells(session_of(tmp_path, server), (one,)).cells[one.id].base == first
    moved = lock_cells(session_of(tmp_path, server), (one,), update=True).cells[one.id]
    assert moved.base == second != first
    assert moved.created == datetime(2026, 7, 1, 10, tzinfo=UTC)


@case("g3-05-nonexistent-combo")
def test_a_tag_that_was_made_up_is_told_with_the_nearest_that_exist(
    case_id: str, server: FakeRegistry, tmp_path: Path
) -> None:
    known = (
        "rocm6.3.1_ubuntu22.04_py3.10_pytorch",
        "rocm6.3_ubuntu24.04_py3.12_pytorch_release_2.4.0",
    )
    site = session_of(tmp_path, server).site
    bases = Bases(site, ProcessRunner(), {}, {PYTORCH: known})
    with pytest.raises(RefusedError) as caught:
        bases.digest(f"{PYTORCH}:{GONE}")
    problem = problem_of(caught)
    assert problem["code"] == "BASE_TAG_NOT_FOUND"
    assert known[0] in problem["fix"]
    assert problem["fix"].index(known[0]) < problem["fix"].index(known[1])
    # An answer is an answer: asked once, and another exit code than a network that is down.
    assert server.count("HEAD", GONE) == 1
    assert caught.value.exit_code == 2
    dead = session_of(tmp_path, None, mirrors={"docker.io": "127.0.0.1:1/hub"}).site
    with pytest.raises(CouldNotError) as down:
        Bases(dead, ProcessRunner(), {}).digest(f"{PYTORCH}:{GONE}")
    assert down.value.exit_code == 1


@case("g3-05-nonexistent-combo")
def test_the_facts_name_what_is_near_and_other_cells_are_locked_all_the_same(
    case_id: str, server: FakeRegistry, tmp_path: Path
) -> None:
    store_image(server, "hub/rocm/pytorch", THERE)
    session = session_of(tmp_path, server)
    there, gone = dnf_cell(f"{PYTORCH}:{THERE}"), dnf_cell(f"{PYTORCH}:{GONE}", 1)
    with pytest.raises(RefusedError, match="BASE_TAG_NOT_FOUND") as caught:
        lock_cells(session, (there, gone))
    near = nearest_tags(GONE, session.facts.upstream_tags)
    assert all(tag in problem_of(caught)["fix"] for tag in near)
    assert len(near) == 3
    written = json.loads(session.lock_file.read_text("utf-8"))["cells"]
    assert set(written) == {there.id}


@case("g3-08-rate-limit")
@pytest.mark.parametrize("wait", ["900", "Mon, 30 Nov 2126 12:00:00 GMT", None])
def test_a_rate_limit_is_told_with_its_wait_and_asks_to_log_in(
    case_id: str, server: FakeRegistry, tmp_path: Path, wait: str | None
) -> None:
    def limited(handler: Handler) -> bool:
        headers = {"RateLimit_Remaining": "0;w=21600"} | ({"Retry_After": wait} if wait else {})
        handler.reply(429, b'{"errors":[{"code":"TOOMANYREQUESTS"}]}', **headers)
        return True

    server.before = limited
    cells = tuple(dnf_cell(f"{PYTORCH}:{THERE}", number) for number in range(6))
    if wait is None:
        cells = cells[:1]  # without a hint it is asked again, a few times
    with pytest.raises(CouldNotError) as caught:
        lock_cells(session_of(tmp_path, server), cells)
    problem = problem_of(caught)
    assert problem["code"] == "RATE_LIMIT"
    assert "log in" in problem["fix"]
    if wait is not None:
        told = f"to wait {wait} s" if wait.isdigit() else f"until {wait}"
        assert told in problem["fix"]
        assert len(server.calls) == 1  # six cells, one base, and no use in asking again


def test_a_registry_that_takes_no_more_requests_is_not_asked_for_the_other_bases(
    server: FakeRegistry, tmp_path: Path
) -> None:
    def limited(handler: Handler) -> bool:
        handler.reply(429, Retry_After="900")
        return True

    server.before = limited
    cells = tuple(dnf_cell(f"{PYTORCH}:{number}", number) for number in range(100))
    with pytest.raises(CouldNotError, match="RATE_LIMIT"):
        lock_cells(session_of(tmp_path, server), cells)
    assert len(server.calls) <= 8  # those that were on their way


def test_a_base_is_asked_for_once_for_all_its_cells_and_its_day_is_the_epoch(
    server: FakeRegistry, tmp_path: Path
) -> None:
    store_image(server, "hub/rocm/pytorch", THERE)
    cells = tuple(dnf_cell(f"{PYTORCH}:{THERE}", number) for number in range(20))
    lock = lock_cells(session_of(tmp_path, server), cells)
    assert {entry.created for entry in lock.cells.values()} == {datetime.fromisoformat(MADE)}
    assert len(lock.cells) == 20
    assert server.count("HEAD") == 1


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "no day"])
def test_a_base_that_hides_its_day_gives_no_epoch(
    server: FakeRegistry, tmp_path: Path, created: str
) -> None:
    store_image(server, "hub/rocm/pytorch", THERE, created)
    with pytest.raises(CouldNotError, match="EPOCH_UNKNOWN"):
        lock_cells(session_of(tmp_path, server), (dnf_cell(f"{PYTORCH}:{THERE}"),))


def test_the_newest_of_base_and_wheels_is_the_epoch_where_no_archive_has_a_date(
    server: FakeRegistry, tmp_path: Path
) -> None:
    store_image(server, "hub/library/almalinux", "9")
    with serving_wheels({"torch": torch_wheels(), "all": other_wheels()}) as wheels:
        wheels.form, wheels.uploaded = "json", "2026-10-01T08:00:00.000000Z"
        one = replace(
            dnf_cell("docker.io/library/almalinux:9"),
            wheels=Wheels(
                f"{wheels.url}/torch/simple",
                "simple",
                (f"torch==2.7.1+{LOCAL}",),
                f"{wheels.url}/all/simple",
            ),
        )
        lock = lock_cells(session_of(tmp_path, server), (one,))
    locked = lock.cells[one.id]
    assert locked.created == datetime(2026, 10, 1, 8, tzinfo=UTC)
    assert "torch" in {wheel.name for wheel in locked.wheels}
    assert locked.archives == ()


@case("g2-04-find-links")
def test_a_flat_folder_that_is_called_a_simple_index_is_told_with_the_option_for_it(
    case_id: str, tmp_path: Path
) -> None:
    with serving_wheels({"torch": torch_wheels(), "all": other_wheels()}) as wheels:
        wrong = Wheels(
            f"{wheels.url}/torch/flat",
            "simple",
            (f"torch==2.7.1+{LOCAL}",),
            f"{wheels.url}/all/simple",
        )
        resolver = WheelResolver(session_of(tmp_path, None))
        with pytest.raises(CouldNotError) as caught:
            resolver.resolve(cell(wheels=wrong))
        right = resolver.resolve(cell(wheels=replace(wrong, style="flat")))
    problem = problem_of(caught)
    assert problem["code"] == "INDEX_STYLE_MISMATCH"
    assert "--find-links" in problem["why"]
    assert "style: flat" in problem["fix"]
    assert problem["where"] == wrong.index
    assert "torch" in {wheel.name for wheel in right.wheels}


@case("g2-05-local-version-sort")
@pytest.mark.parametrize(
    ("candidates", "wanted"),
    [
        (
            (
                "2.12.0+rocm7.14.0a20260620",
                "2.12.0+rocm7.15.0a20260728",
                "2.12.0+rocm10.1.0a20260807",
            ),
            "2.12.0+rocm10.1.0a20260807",
        ),
        (("2.9.1+rocm10.1", "2.10.0+rocm7.2"), "2.10.0+rocm7.2"),
        (("2.7.1+rocm6.2.4", "2.7.1+rocm6.3"), "2.7.1+rocm6.3"),
        (("2.7.1+rocm6.2.4", "2.7.1+rocm6.2"), "2.7.1+rocm6.2.4"),
        (("2.14.0+rocm10.1.0", "2.14.0+rocm10.1.0a20260807"), "2.14.0+rocm10.1.0"),
        (
            ("3.8.0+git669b31ac.rocm10.1.0", "3.8.0+gitffff.rocm7.15"),
            "3.8.0+git669b31ac.rocm10.1.0",
        ),
        (("2.7.1", "2.7.1+rocm6.3", "2.7.1+cpu"), "2.7.1+rocm6.3"),
    ],
)
def test_the_newest_wheel_is_the_one_of_the_newest_release(
    case_id: str, candidates: tuple[str, ...], wanted: str
) -> None:
    assert newest(candidates) == newest(tuple(reversed(candidates))) == wanted


def test_what_is_no_version_is_refused_by_its_value() -> None:
    with pytest.raises(ValueError, match=r"not a version: 'rocm6\.2'"):
        newest(("rocm6.2", "2.7.1"))
