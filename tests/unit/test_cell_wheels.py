"""The wheels of a cell against indexes on loopback: resolved by uv, fetched by hash, lent."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from samples import LOCKED, cell
from wheel_server import (
    LOCAL,
    TAG,
    Handler,
    WheelServer,
    other_wheels,
    serving_wheels,
    torch_wheels,
    wheel,
)

from builder.engines.fetching import Fetcher
from builder.engines.process import ProcessRunner
from builder.engines.registry import Patience
from builder.errors import CouldNotError, RefusedError
from builder.facts import load_facts
from builder.matrix.cells import Base, Cell, Wheels
from builder.matrix.lock import Lock, LockedCell, LockedWheel
from builder.matrix.site import Site
from builder.oci import Digest
from builder.pipeline.archives import Archives
from builder.pipeline.lock import offline_lock
from builder.pipeline.once import Once
from builder.pipeline.session import Job, Session
from builder.pipeline.wheel_contexts import gone, wheel_contexts
from builder.pipeline.wheels import Resolution, WheelResolver
from builder.pipeline.workspace import Tools, Workspace
from builder.plan.inputs import Inputs
from builder.report.progress import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TORCH = f"torch-2.7.1+{LOCAL}-{TAG}.whl"
PINS = (f"torch==2.7.1+{LOCAL}", f"torchvision==0.22.1+{LOCAL}", f"torchaudio==2.7.1+{LOCAL}")
ALL = ("filelock", "pip", "pytorch-triton-rocm", "torch", "torchaudio", "torchvision")
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def server() -> Iterator[WheelServer]:
    with serving_wheels({"torch": torch_wheels(), "all": other_wheels()}) as running:
        yield running


def wheel_cell(server: WheelServer, style: str = "simple", **changes: Any) -> Cell:
    index = f"{server.url}/torch/{style}"
    wheels = Wheels(index, style, PINS, f"{server.url}/all/simple")  # type: ignore[arg-type]
    return cell(
        id="rocm6.2.4-torch2.7.1-py313-debian13",
        rocm="6.2.4",
        base=Base("wheel", "docker.io/library/debian:13"),
        wheels=replace(wheels, **changes),
    )


def session_of(folder: Path, house: Path | None = None, **site: dict[str, str]) -> Session:
    (folder / "site.yaml").write_text(yaml.safe_dump(site), "utf-8")
    tools = Tools(ProcessRunner(), lambda: NOON, lambda: 0.0, Silent())
    root = folder / "copy"
    lock, matrix = root / "matrix.lock", root / "matrix.yaml"
    return Session(
        Workspace(root), tools, lock, matrix, site_file=folder / "site.yaml", wheelhouse=house
    )


def resolved(session: Session, cell: Cell) -> Resolution:
    fetcher = Fetcher(Patience(attempts=2, first_wait=0.0, longest_wait=1.0))
    return WheelResolver(session, fetcher).resolve(cell)


def job_of(cell: Cell, wheels: tuple[LockedWheel, ...]) -> Job:
    locked = replace(LOCKED, wheels=wheels)
    return Job(cell, locked, {}, Inputs(()))


def digest(content: bytes) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(content).hexdigest()}")


@pytest.mark.parametrize("hashes", [True, False])
@pytest.mark.parametrize(
    ("style", "form"), [("simple", "html"), ("simple", "json"), ("flat", "html")]
)
def test_every_wheel_is_locked_with_the_hash_of_its_file_and_where_it_is(
    server: WheelServer, tmp_path: Path, style: str, form: str, hashes: bool
) -> None:
    server.form, server.hashes = form, hashes
    found = {
        one.name: one for one in resolved(session_of(tmp_path), wheel_cell(server, style)).wheels
    }
    assert tuple(found) == ALL
    assert found["torch"] == LockedWheel(
        "torch",
        f"2.7.1+{LOCAL}",
        TORCH,
        digest(server.indexes["torch"][TORCH]),
        f"{server.url}/torch/files/torch-2.7.1%2Brocm6.2.4-{TAG}.whl",
    )


def test_a_folder_of_wheels_takes_the_place_of_every_index(
    server: WheelServer, tmp_path: Path
) -> None:
    house = tmp_path / "house"
    house.mkdir()
    for file, content in (torch_wheels() | other_wheels()).items():
        (house / file).write_bytes(content)
    session = session_of(tmp_path, house)
    cell = wheel_cell(server)
    wheels = resolved(session, cell).wheels
    assert tuple(one.name for one in wheels) == ALL
    assert {one.url for one in wheels} == {None}
    contexts = dict(wheel_contexts(session, job_of(cell, wheels)))
    assert (contexts["wheels"] / TORCH).samefile(house / TORCH)
    assert server.calls == []


def test_a_folder_that_lacks_something_is_told_with_what_it_lacks(
    server: WheelServer, tmp_path: Path
) -> None:
    house = tmp_path / "house"
    house.mkdir()
    for file, content in torch_wheels().items():
        (house / file).write_bytes(content)
    with pytest.raises(CouldNotError, match="WHEELS_NOT_FOUND") as caught:
        resolved(session_of(tmp_path, house), wheel_cell(server))
    (problem,) = caught.value.problems
    assert problem.where == str(house)
    assert any(name in (problem.why or "") for name in ("pip", "filelock"))
    assert "pip included" in (problem.fix or "")


def test_a_mirror_is_asked_and_the_lock_does_not_name_it(
    server: WheelServer, tmp_path: Path
) -> None:
    there = "https://download.pytorch.example/whl"
    cell = wheel_cell(server)
    assert cell.wheels is not None
    wheels = replace(cell.wheels, index=f"{there}/simple", others="https://pypi.example/simple")
    cell = replace(cell, wheels=wheels)
    indexes = {
        there: f"{server.url}/torch",
        "https://pypi.example/simple": f"{server.url}/all/simple",
    }
    session = session_of(tmp_path, indexes=indexes)
    found = {one.name: one for one in resolved(session, cell).wheels}
    quoted = f"torch-2.7.1%2Brocm6.2.4-{TAG}.whl"
    assert found["torch"].url == f"{there}/files/{quoted}"
    # Files of this mirror lie beside its index: nothing canonical can be said of them.
    assert found["pip"].url is None
    contexts = dict(wheel_contexts(session, job_of(cell, tuple(found.values()))))
    assert {path.name for path in contexts["wheels"].iterdir()} == {
        "requirements.txt",
        *server.indexes["torch"],
        *server.indexes["all"],
    }


def test_what_was_locked_elsewhere_is_fetched_through_the_mirror_and_nowhere_else(
    server: WheelServer, tmp_path: Path
) -> None:
    content = server.indexes["all"]["filelock-3.1-py3-none-any.whl"]
    public = LockedWheel(
        "filelock",
        "3.1",
        "filelock-3.1-py3-none-any.whl",
        digest(content),
        "https://files.pypi.invalid/ab/cd/filelock-3.1-py3-none-any.whl",
    )
    cell = wheel_cell(server, index="https://index.invalid/x", others="https://pypi.invalid/simple")
    indexes = {
        "https://index.invalid/x": f"{server.url}/torch/simple",
        "https://pypi.invalid/simple": f"{server.url}/all/simple",
    }
    contexts = dict(wheel_contexts(session_of(tmp_path, indexes=indexes), job_of(cell, (public,))))
    assert (contexts["wheels"] / public.file).read_bytes() == content


def test_a_build_is_lent_the_locked_files_a_list_of_their_hashes_and_uv(
    server: WheelServer, tmp_path: Path
) -> None:
    session, cell = session_of(tmp_path), wheel_cell(server)
    wheels = resolved(session, cell).wheels
    contexts = dict(wheel_contexts(session, job_of(cell, wheels)))
    lines = (contexts["wheels"] / "requirements.txt").read_text().splitlines()
    assert f"torch==2.7.1+{LOCAL} --hash={digest(torch_wheels()[TORCH])}" in lines
    assert len(lines) == len(ALL)
    assert (contexts["tools"] / "uv").stat().st_mode & 0o111
    asked = len(server.calls)
    assert dict(wheel_contexts(session, job_of(cell, wheels))) == contexts
    assert len(server.calls) == asked


def test_a_cell_whose_lock_has_no_wheels_is_not_built(server: WheelServer, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="WHEELS_NOT_LOCKED"):
        wheel_contexts(session_of(tmp_path), job_of(wheel_cell(server), ()))


def test_a_file_that_was_taken_away_after_it_was_locked_is_named_with_its_index(
    server: WheelServer, tmp_path: Path
) -> None:
    session, cell = session_of(tmp_path), wheel_cell(server)
    wheels = resolved(session, cell).wheels
    del server.indexes["torch"][TORCH]
    with pytest.raises(CouldNotError) as caught:
        wheel_contexts(session, job_of(cell, wheels))
    (problem,) = caught.value.problems
    assert problem.code == "WHEEL_GONE"
    assert TORCH in problem.what
    assert f"{server.url}/torch/simple" in problem.what
    assert "--wheelhouse" in (problem.fix or "")
    assert f"lock --update {cell.id}" in (problem.fix or "")


def test_a_file_that_was_exchanged_is_not_taken(server: WheelServer, tmp_path: Path) -> None:
    session, cell = session_of(tmp_path), wheel_cell(server)
    wheels = resolved(session, cell).wheels
    server.indexes["torch"][TORCH] += b"more"
    with pytest.raises(CouldNotError, match="WHEEL_DAMAGED"):
        wheel_contexts(session, job_of(cell, wheels))
    assert not list((tmp_path / "copy").rglob(TORCH))


def test_a_transfer_that_breaks_goes_on_where_it_stopped(
    server: WheelServer, tmp_path: Path
) -> None:
    content = b"x" * 3_000_000
    server.indexes["torch"]["big-1-py3-none-any.whl"] = content
    ranges: list[str | None] = []

    def cut(handler: Handler) -> bool:
        ranges.append(handler.headers.get("Range"))
        if len(ranges) > 1:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:2_000_000])
        handler.close_connection = True
        return True

    server.before = cut
    file = "big-1-py3-none-any.whl"
    big = LockedWheel("big", "1", file, digest(content), f"{server.url}/torch/files/{file}")
    contexts = dict(wheel_contexts(session_of(tmp_path), job_of(wheel_cell(server), (big,))))
    assert (contexts["wheels"] / big.file).read_bytes() == content
    assert ranges[0] is None
    assert ranges[1] is not None
    assert ranges[1] != "bytes=0-"


@pytest.mark.parametrize("form", ["html", "json"])
def test_a_yanked_file_is_taken_where_the_pin_is_exact(
    server: WheelServer, tmp_path: Path, form: str
) -> None:
    server.form = form
    server.yanked = {TORCH}
    found = resolved(session_of(tmp_path), wheel_cell(server))
    assert "torch" in {one.name for one in found.wheels}


def test_a_torch_that_is_not_there_is_told_with_those_that_are(
    server: WheelServer, tmp_path: Path
) -> None:
    for local in ("rocm10.1.0", "rocm7.15.0"):
        file, content = wheel("torch", f"2.7.1+{local}", TAG)
        server.indexes["torch"][file] = content
    cell = wheel_cell(server, requirements=("torch==9.9.9+rocm6.2.4",))
    with pytest.raises(CouldNotError, match="WHEELS_NOT_FOUND") as caught:
        resolved(session_of(tmp_path), cell)
    (problem,) = caught.value.problems
    assert "torch==9.9.9+rocm6.2.4" in problem.what
    # By release and not by text: pip would put rocm7.15 first.
    told = "it has torch 2.7.1+rocm10.1.0, 2.7.1+rocm7.15.0, 2.7.1+rocm6.2.4"
    assert problem.fix == told


def test_an_index_without_torch_never_gives_way_to_the_general_one(
    server: WheelServer, tmp_path: Path
) -> None:
    # The general index has a torchvision, for CUDA; the index of this ROCm has none.
    del server.indexes["torch"][f"torchvision-0.22.1+{LOCAL}-{TAG}.whl"]
    file, content = wheel("torchvision", "0.22.1")
    server.indexes["all"][file] = content
    pins = (PINS[0], "torchvision==0.22.1")
    with pytest.raises(CouldNotError, match="PROJECT_NOT_ON_INDEX"):
        resolved(session_of(tmp_path), wheel_cell(server, requirements=pins))
    with pytest.raises(CouldNotError, match="WHEEL_OF_ANOTHER_INDEX"):
        resolved(session_of(tmp_path), wheel_cell(server, "flat", requirements=pins))


def test_a_simple_index_that_is_called_flat_is_told(server: WheelServer, tmp_path: Path) -> None:
    cell = wheel_cell(server, "flat", index=f"{server.url}/torch/simple")
    with pytest.raises(CouldNotError, match="INDEX_STYLE_MISMATCH") as caught:
        resolved(session_of(tmp_path), cell)
    assert "style: simple" in (caught.value.problems[0].fix or "")


def test_an_index_that_does_not_answer_is_told_with_the_setting_of_a_site(
    server: WheelServer, tmp_path: Path
) -> None:
    cell = wheel_cell(server, index="http://127.0.0.1:1/x")
    with pytest.raises(CouldNotError, match="INDEX_UNREACHABLE") as caught:
        resolved(session_of(tmp_path), cell)
    assert 'indexes: {"http://127.0.0.1:1/x"' in (caught.value.problems[0].fix or "")


def test_an_index_that_asks_for_patience_gets_it_or_is_told_with_the_wait(
    server: WheelServer, tmp_path: Path
) -> None:
    waits = ["0"]

    def busy(handler: Handler) -> bool:
        if waits:
            handler.reply(429, Retry_After=waits.pop())
            return True
        return False

    server.before = busy
    assert resolved(session_of(tmp_path), wheel_cell(server)).wheels
    waits.append("900")
    with pytest.raises(CouldNotError, match="RATE_LIMIT") as caught:
        resolved(session_of(tmp_path), wheel_cell(server))
    assert "900 s" in (caught.value.problems[0].fix or "")
    assert not caught.value.problems[0].where or "900" not in caught.value.problems[0].where


def test_settings_of_the_caller_for_uv_and_pip_add_no_index(
    server: WheelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_INDEX", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    assert resolved(session_of(tmp_path), wheel_cell(server)).wheels


def test_several_cells_with_the_same_wheels_are_resolved_once(
    server: WheelServer, tmp_path: Path
) -> None:
    resolver = WheelResolver(session_of(tmp_path))
    first = resolver.resolve(wheel_cell(server))
    asked = len(server.calls)
    assert resolver.resolve(replace(wheel_cell(server), distro="ubuntu22.04")) == first
    assert len(server.calls) == asked


def test_times_of_uploads_are_known_where_the_index_tells_them(
    server: WheelServer, tmp_path: Path
) -> None:
    server.form, server.uploaded = "json", "2026-10-01T08:00:00.000000Z"
    found = resolved(session_of(tmp_path), wheel_cell(server))
    assert found.uploaded == datetime(2026, 10, 1, 8, tzinfo=UTC)


def test_a_free_threaded_python_is_left_unlocked_with_the_reason(
    server: WheelServer, tmp_path: Path
) -> None:
    with pytest.raises(CouldNotError, match="FREE_THREADED_NOT_RESOLVED"):
        resolved(session_of(tmp_path), replace(wheel_cell(server), python="3.13t"))


def test_where_a_wheel_was_fetched_from_decides_nothing_and_its_hash_does() -> None:
    wheel = LockedWheel("a", "1", "a-1-py3-none-any.whl", Digest.of(b"a"), "https://x.example/a")
    one = replace(LOCKED, wheels=(wheel,))
    other = replace(LOCKED, wheels=(replace(wheel, url=None),))
    changed = replace(LOCKED, wheels=(replace(wheel, sha256=Digest.of(b"b")),))

    def inputs(locked: LockedCell, uv: str = "0.13.9") -> Inputs:
        return Inputs.of_folders(context={}, folders={}, locked=locked, programs={"uv": uv})

    assert inputs(one).digest == inputs(other).digest
    assert inputs(changed).changed_since(inputs(one)) == ("lock/wheels",)
    assert inputs(one, "0.14.0").changed_since(inputs(one)) == ("program/uv",)
    assert LockedCell.from_json(other.to_json()) == other


def test_a_companion_of_another_rocm_gives_way_to_the_one_of_torchs(
    server: WheelServer, tmp_path: Path
) -> None:
    newer = wheel("torchvision", "0.22.1+rocm6.4", TAG, (f"torch==2.7.1+{LOCAL}",))
    server.indexes["torch"] |= dict([newer])
    pins = (PINS[0], "torchvision==0.22.1")
    found = resolved(session_of(tmp_path), wheel_cell(server, requirements=pins)).wheels
    assert {one.name: one.version for one in found}["torchvision"] == f"0.22.1+{LOCAL}"


def test_an_index_with_a_login_is_read_by_netrc_and_the_lock_has_none(
    server: WheelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def guard(handler: Handler) -> bool:
        known = handler.headers.get("Authorization") == "Basic c2l0ZTp3b3JkMTIz"
        if not known:
            handler.reply(401)
        return not known

    server.before = guard
    logins = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(logins))
    session, cell = session_of(tmp_path), wheel_cell(server)
    with pytest.raises(CouldNotError, match="INDEX_FAILED"):
        WheelResolver(session).resolve(cell)
    logins.write_text("machine 127.0.0.1 login site password word123\n")
    wheels = WheelResolver(session).resolve(cell).wheels
    assert wheel_contexts(session, job_of(cell, wheels))
    assert not [one for one in wheels if "word123" in (one.url or "")]


def test_a_file_of_logins_that_cannot_be_read_is_named_without_what_it_says(
    server: WheelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins = tmp_path / "netrc"
    logins.write_text("machine 127.0.0.1 word123 site\n")
    monkeypatch.setenv("NETRC", str(logins))
    with pytest.raises(CouldNotError, match="NETRC_UNREADABLE") as caught:
        WheelResolver(session_of(tmp_path))
    assert "word123" not in str(caught.value)


def lock_of(session: Session, cell: Cell, wheels: tuple[LockedWheel, ...]) -> Session:
    """Write the lock of ``cell`` as a run would and return the next run."""
    wanted = cell.wheels.requirements if cell.wheels else ()
    entry = replace(LOCKED, origin="registry", wheels=wheels, requirements=wanted)
    session.lock_file.parent.mkdir(parents=True, exist_ok=True)
    session.lock_file.write_text(Lock().with_cells({cell.id: entry}).to_text())
    return replace(session)


def test_wheels_that_were_locked_for_other_wishes_do_not_count(
    server: WheelServer, tmp_path: Path
) -> None:
    session, cell = session_of(tmp_path), wheel_cell(server)
    session = lock_of(session, cell, resolved(session, cell).wheels)
    assert session.locked(cell) == session.lock.cells[cell.id]
    other = wheel_cell(server, requirements=PINS[:1])
    assert session.locked(other) is None
    with pytest.raises(RefusedError, match="UNLOCKED") as caught:
        session.job(other)
    assert "for the wheels that it asks for now" in str(caught.value)


def test_offline_the_wheels_must_lie_here(server: WheelServer, tmp_path: Path) -> None:
    session, cell = session_of(tmp_path), wheel_cell(server)
    wheels = resolved(session, cell).wheels
    session = lock_of(session, cell, wheels)
    with pytest.raises(RefusedError, match="WHEELS_NOT_HERE"):
        offline_lock(session, [cell])
    wheel_contexts(session, job_of(cell, wheels))
    asked = len(server.calls)
    assert offline_lock(session, [cell]) == session.lock
    assert len(server.calls) == asked


def test_a_wheel_that_was_taken_away_is_told_once_for_all_cells(
    server: WheelServer, tmp_path: Path
) -> None:
    session, cell = session_of(tmp_path), wheel_cell(server)
    wheels = resolved(session, cell).wheels
    offered: Once[bool] = Once()
    assert gone(session, cell, wheels, offered) == []
    del server.indexes["torch"][TORCH]
    assert gone(session, cell, wheels, offered) == []  # a run asks once
    problems = gone(session, cell, wheels, Once())
    assert [problem.code for problem in problems] == ["WHEEL_GONE"]
    assert TORCH in problems[0].what


def test_an_image_that_installs_no_packages_reads_no_archive() -> None:
    archives = Archives(Site(), ask=lambda _url: pytest.fail("nobody is to be asked"))
    debian = load_facts().distributions["debian13"]
    bare = cell(base=Base("rocm-pytorch", "docker.io/rocm/pytorch:tag"), packages=())
    assert archives.now(bare, debian) == ()
