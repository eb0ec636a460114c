"""`lock` and its modes against a registry and an archive on loopback: the mirrors of a site."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from registry_server import FakeRegistry, Handler, digest_of, serving
from samples import OURS, project

from builder.cli.main import run
from builder.engines.process import ProcessRunner
from builder.errors import CouldNotError, Problem, RefusedError
from builder.facts import load_facts
from builder.matrix.lock import Lock
from builder.matrix.site import Site
from builder.oci import Digest
from builder.pipeline.archives import Archives, moves, require_unmoved
from builder.pipeline.lock import lock_cells
from builder.pipeline.preflight import require_wheel_cells
from builder.pipeline.prune import locks_here
from builder.pipeline.session import Session
from builder.pipeline.workspace import Tools, Workspace
from builder.report.progress import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CELL = OURS[0]
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DEBIAN = "http://deb.debian.org/debian"
FIRST = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)


class Place:
    """A site: registry and archive at one address, and a working copy that uses them."""

    def __init__(self, root: Path, server: FakeRegistry) -> None:
        self.root, self.server = root, server
        self.dates: dict[str, datetime] = {}
        self.locked_out = False
        server.before = self.answer
        self.base("one")
        settings = {
            "mirrors": {"docker.io": f"{server.host}/hub"},
            "packages": {
                url: f"http://{server.host}/{url.rpartition('/')[2]}"
                for url in (DEBIAN, f"{DEBIAN}-security")
            },
        }
        (root / "site.yaml").write_text(yaml.safe_dump(settings))

    def base(self, content: str) -> str:
        body = json.dumps({"annotations": {"content": content}}).encode()
        for number in ("12", "13"):
            self.server.store("hub/library/debian", number, MANIFEST, body)
        return digest_of(body)

    def answer(self, handler: Handler) -> bool:
        if handler.route.endswith("/InRelease"):
            suite = handler.route.split("/")[-2]
            date = self.dates.get(suite, FIRST)
            handler.reply(200, f"Codename: {suite}\nDate: {date:%a, %d %b %Y %T} UTC\n".encode())
            return True
        if self.locked_out:
            handler.reply(401, WWW_Authenticate='Basic realm="site"')
        return self.locked_out

    def call(self, *words: str) -> int:
        return run(["--project", str(self.root), "--quiet", *words])

    def entry(self) -> dict[str, Any]:
        lock = json.loads((self.root / "matrix.lock").read_text())
        found: dict[str, Any] = lock["cells"][CELL]
        return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with serving(FakeRegistry()) as server:
        yield Place(project(tmp_path / "copy", locked=False), server)


def session_of(site: Place, lock: Path, wheelhouse: Path | None = None) -> Session:
    tools = Tools(ProcessRunner(), lambda: FIRST, lambda: 0.0, Silent())
    return Session(
        Workspace(site.root),
        tools,
        lock,
        site.root / "matrix.yaml",
        site_file=site.root / "site.yaml",
        wheelhouse=wheelhouse,
    )


def problems(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["problems"]
    return found


def test_a_lock_names_the_canonical_archive_and_the_mirrors_digest(site: Place) -> None:
    assert site.call("lock", CELL) == 0
    entry = site.entry()
    assert entry["base"] == {
        "digest": site.base("one"),
        "origin": "registry",
        "ref": "docker.io/library/debian:13",
    }
    assert {one["uri"] for one in entry["archives"]} == {DEBIAN, f"{DEBIAN}-security"}
    assert site.server.host not in (site.root / "matrix.lock").read_text()


def test_each_suite_and_base_is_asked_for_once_a_run(site: Place) -> None:
    assert site.call("lock") == 0
    assert len(site.server.calls) == len(set(site.server.calls)) == 8


def test_a_check_of_what_still_holds_is_0_and_changes_nothing(site: Place) -> None:
    site.call("lock", CELL)
    path = site.root / "matrix.lock"
    before = (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
    assert site.call("lock", "--check", CELL) == 0
    assert (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) == before


def test_a_check_tells_everything_that_moved(
    site: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    site.call("lock", CELL)
    old = site.entry()
    site.dates["trixie-security"] = FIRST + timedelta(days=2)
    new = site.base("two")
    capsys.readouterr()
    assert site.call("lock", "--check", CELL, "--json") == 2
    archive, base = problems(capsys)
    assert archive["what"] == "archive moved: trixie-security 2026-11-29 -> 2026-12-01"
    assert base["what"].startswith("base moved: docker.io/library/debian:13 ")
    assert old["base"]["digest"][:19] in base["what"]
    assert new[:19] in base["what"]
    assert archive["fix"] == f"run `rocm-torch lock --update {CELL}`"
    assert site.entry() == old
    assert site.call("lock", "--update", CELL) == 0
    assert site.call("lock", "--check", CELL) == 0


def test_a_check_names_cells_that_are_not_locked(
    site: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    site.call("lock", CELL)
    capsys.readouterr()
    assert site.call("lock", "--check", "--json") == 2
    assert [(one["code"], one["where"]) for one in problems(capsys)] == [("UNLOCKED", OURS[1])]


def test_offline_nobody_is_asked(site: Place, capsys: pytest.CaptureFixture[str]) -> None:
    site.call("lock", CELL)
    calls = len(site.server.calls)
    assert site.call("lock", "--offline", CELL) == 0
    capsys.readouterr()
    assert site.call("lock", "--offline", "--json") == 2
    assert [one["code"] for one in problems(capsys)] == ["UNLOCKED"]
    assert len(site.server.calls) == calls


def test_offline_a_bootstrapped_base_must_lie_here(
    site: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    site.call("lock", CELL)
    path = site.root / "matrix.lock"
    path.write_text(path.read_text().replace('"registry"', '"bootstrap"'))
    capsys.readouterr()
    assert site.call("lock", "--offline", CELL, "--json") == 2
    assert [one["code"] for one in problems(capsys)] == ["BASE_NOT_HERE"]


@pytest.mark.parametrize("pair", [("--update", "--check"), ("--check", "--offline")])
def test_the_modes_exclude_each_other(site: Place, pair: tuple[str, str]) -> None:
    assert site.call("lock", *pair) == 64


def test_a_credential_helper_that_is_not_there_is_named_and_nothing_else_is_taken(
    site: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/config.json").write_text('{"credsStore": "of-no-one"}')
    site.locked_out = True
    assert site.call("lock", CELL, "--json") == 1
    (problem,) = problems(capsys)
    assert problem["code"] == "CREDENTIAL_HELPER_MISSING"
    assert problem["where"] == site.server.host
    assert "docker-credential-of-no-one" in problem["what"]
    assert f"docker login {site.server.host}" in problem["fix"]


def test_a_mirror_that_does_not_answer_is_told_with_its_setting(
    site: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = "127.0.0.1:1"
    settings = {
        "mirrors": {"docker.io": f"{dead}/hub"},
        "packages": {DEBIAN: f"http://{dead}/debian"},
    }
    (site.root / "site.yaml").write_text(yaml.safe_dump(settings))
    assert site.call("lock", CELL, "--json") == 1
    archive, registry = problems(capsys)
    assert archive["where"] == f"http://{dead}/debian/dists/trixie/InRelease"
    assert f'packages: {{"{DEBIAN}": "http://{dead}/debian"}}' in archive["fix"]
    assert registry["code"] == "REGISTRY_REFUSED_CONNECTION"
    assert "check `mirrors:`" in registry["fix"]
    assert "docker.io/library/debian" in registry["fix"]


def test_settings_that_are_wrong_stop_a_lock_with_their_line(
    site: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    (site.root / "site.yaml").write_text("\nmirors: {}\n")
    assert site.call("lock", "--json") == 2
    (problem,) = problems(capsys)
    assert (problem["code"], problem["where"]) == ("UNKNOWN_KEY", "site.yaml:2")


def test_other_settings_than_those_beside_the_matrix_can_be_named(
    site: Place, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    (site.root / "site.yaml").rename(other)
    assert site.call("--site", str(other), "lock", CELL) == 0


def test_an_archive_that_failed_is_not_asked_again() -> None:
    asked: list[str] = []

    def ask(url: str) -> bytes:
        asked.append(url)
        raise CouldNotError(Problem("ARCHIVE_UNREACHABLE", "no answer", where=url))

    archives = Archives(Site(), ask)
    for _ in range(3):
        with pytest.raises(CouldNotError, match="packages: "):
            archives.states(load_facts().distributions["debian13"])
    assert len(asked) == 1


@pytest.mark.parametrize("lock", ["", "other.lock"])
def test_a_stale_cell_is_not_built_from_an_archive_that_moved(
    site: Place, tmp_path: Path, lock: str
) -> None:
    site.call("lock", CELL)
    file = site.root / "matrix.lock"
    if lock:
        file = file.rename(tmp_path / lock)
    session = session_of(site, file)
    job = session.job(next(cell for cell in session.matrix.cells if cell.id == CELL))
    require_unmoved(session, [job], Archives(session.site))
    site.dates["trixie-updates"] = FIRST + timedelta(days=1)
    with pytest.raises(RefusedError, match="ARCHIVE_MOVED") as caught:
        require_unmoved(session, [job], Archives(session.site))
    (problem,) = caught.value.problems
    assert problem.what.startswith("archive moved: trixie-updates 2026-11-29 -> 2026-11-30")
    option = f"--lock {file} " if lock else ""
    assert problem.fix == f"run `rocm-torch {option}lock --update {CELL}`"


def test_a_wheelhouse_that_no_cell_would_use_is_refused(site: Place, tmp_path: Path) -> None:
    session = session_of(site, site.root / "matrix.lock", tmp_path)
    cells = session.matrix.cells
    with pytest.raises(RefusedError, match="WHEELHOUSE_NOT_USED"):
        require_wheel_cells(session, cells)
    wheel = replace(cells[0], base=replace(cells[0].base, family="wheel"))
    require_wheel_cells(session, [wheel, *cells])


def test_moves_are_told_by_suite_and_days_or_minutes(tmp_path: Path) -> None:
    root = project(tmp_path)
    lock = Lock.from_text((root / "matrix.lock").read_text(), "matrix.lock")
    (then,) = lock.cells[CELL].archives
    assert moves((then,), (then,)) == ()
    later = replace(then, sha256=Digest.of(b"new"), date=then.date + timedelta(hours=2))
    assert moves((then,), (later,)) == (
        "archive moved: trixie 2026-07-11T00:00 -> 2026-07-11T02:00",
    )
    other = replace(then, suite="trixie-updates")
    assert moves((then,), (other,)) == (
        f"archive added: trixie-updates of {DEBIAN}",
        f"archive no longer used: trixie of {DEBIAN}",
    )


def test_a_lock_that_is_stopped_ends_the_programs_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    class Counting(ProcessRunner):
        def end_all(self) -> None:
            ended.append("all")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("builder.pipeline.lock.Resolver.resolve", stopped)
    root = project(tmp_path / "copy")
    tools = Tools(Counting(), lambda: FIRST, lambda: 0.0, Silent())
    session = Session(Workspace(root), tools, root / "new.lock", root / "matrix.yaml")
    with pytest.raises(KeyboardInterrupt):
        lock_cells(session, session.matrix.cells)
    assert ended == ["all"]
    assert not (root / "new.lock").exists()


def test_prune_keeps_what_the_committed_lock_names_though_another_lock_is_given(
    tmp_path: Path,
) -> None:
    root = project(tmp_path / "copy")
    session = Session(
        Workspace(root),
        Tools(ProcessRunner(), lambda: FIRST, lambda: 0.0, Silent()),
        root / "other.lock",
        root / "matrix.yaml",
    )
    (root / "matrix.lock").write_text(Lock().to_text(), "utf-8")
    assert len(locks_here(session)) == 2
