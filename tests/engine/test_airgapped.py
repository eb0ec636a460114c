"""The whole chain where only loopback is reached: a registry, a package mirror, an engine there."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from airgap import BRIDGE, Inside, airgap, removed
from projects import IMAGE, REPO, WHEEL_LANE, Project, tiny_project, wheel_facts
from wheel_server import other_wheels, torch_wheels

from builder.engines.layout import Layout
from builder.matrix.lock import Lock
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from builder.matrix.lock import LockedCell

pytestmark = pytest.mark.engine

DEBIAN = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
PREFIX = "hub"
_PUSH = """
import sys
from pathlib import Path
from builder.engines.layout import Layout
from builder.engines.registry import Registry
from builder.oci import Digest
host, layout, digest, repository = sys.argv[1:]
Registry(host).push_image(Layout(Path(layout)), Digest(digest), repository, "13")
"""

# Without the look at the room first: a real image of wheels wants 90 GiB.
_BUILD = """
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from builder.engines.process import ProcessRunner
from builder.pipeline.build import build
from builder.pipeline.session import Session
from builder.pipeline.workspace import Tools, Workspace
from builder.report.progress import Silent
root, matrix, lock, house = map(Path, sys.argv[1:])
tools = Tools(ProcessRunner(), lambda: datetime.now(UTC), time.monotonic, Silent())
session = Session(Workspace(root), tools, lock, matrix, root / "facts", root / "site.yaml", house)
(cell,) = session.matrix.cells
print(build(session, session.job(cell)).digest)
"""


@dataclass(frozen=True)
class Chain:
    """What the chain left."""

    project: Project
    bootstrapped: LockedCell
    mirrored: LockedCell
    build: dict[str, Any]
    row: dict[str, Any]


@pytest.fixture(scope="module")
def inside(run_folder: Path) -> Iterator[Inside]:
    with airgap(run_folder / "airgap") as found:
        yield found


@pytest.fixture(scope="module")
def chain(inside: Inside, run_folder: Path) -> Iterator[Chain]:
    """Lock from nothing, bring up a registry, fill it as a mirror, lock from there, release."""
    root = run_folder / "projects" / "airgapped"
    project = replace(tiny_project(root, None, None), enter=inside.enter)
    packages = _packages(inside)
    _settings(project, packages=packages)
    project.done("lock")
    bootstrapped = _locked(project)
    host = project.done("registry", "up")["host"]
    try:
        _push(project, host, bootstrapped.base)
        _settings(project, packages=packages, mirrors={"docker.io": f"{host}/{PREFIX}"})
        project.done("lock", "--update")
        mirrored = _locked(project)
        project = replace(project, registry=host)
        build = project.done("build")["records"][0]
        row = project.release()["cells"][0]
        yield Chain(project, bootstrapped, mirrored, build, row)
    finally:
        project.call("registry", "down", "--purge")
        assert removed(root)


def _packages(inside: Inside) -> dict[str, str]:
    url = inside.mirror.url
    return {DEBIAN: f"{url}/debian", SECURITY: f"{url}/debian-security"}


def _settings(project: Project, **sections: dict[str, str]) -> None:
    (project.root / "site.yaml").write_text(yaml.safe_dump(sections), "utf-8")


def _locked(project: Project) -> LockedCell:
    lock = Lock.from_text((project.root / "matrix.lock").read_text("utf-8"), "matrix.lock")
    (entry,) = lock.cells.values()
    return entry


def _push(project: Project, host: str, base: Digest) -> None:
    layout = str(project.root / ".rocm-torch/layout")
    subprocess.run(
        [
            *project.enter,
            sys.executable,
            "-c",
            _PUSH,
            host,
            layout,
            base,
            f"{PREFIX}/library/debian",
        ],
        check=True,
        cwd=REPO,
        timeout=120,
    )


def test_a_cell_goes_through_all_steps_with_loopback_alone(chain: Chain) -> None:
    assert chain.bootstrapped.origin == "bootstrap"
    assert chain.row["digest"] == chain.build["digest"]
    reference = f"{chain.project.registry}/{IMAGE}@{chain.build['digest']}"
    assert chain.project.call("verify", reference).returncode == 0


def test_the_base_of_a_mirrored_registry_is_asked_there_by_its_canonical_name(
    chain: Chain,
) -> None:
    assert chain.mirrored == replace(chain.bootstrapped, origin="registry")
    assert {archive.uri for archive in chain.mirrored.archives} == {DEBIAN, SECURITY}
    dockerfile = next((chain.project.root / "images").glob("cpu-*/Dockerfile")).read_text("utf-8")
    assert "FROM docker.io/library/debian:13\n" in dockerfile


def test_nothing_in_an_image_names_the_site(chain: Chain) -> None:
    layout = Layout(chain.project.root / ".rocm-torch/layout")
    manifest = layout.manifest(Digest(chain.build["digest"]))
    blobs = [manifest.raw, *(layout.blob_path(blob.digest).read_bytes() for blob in manifest.blobs)]
    texts = [gzip.decompress(blob) if blob[:2] == b"\x1f\x8b" else blob for blob in blobs]
    for name in (BRIDGE, f"{chain.project.registry}/{PREFIX}"):
        assert not [text[:80] for text in texts if name.encode() in text]


def test_the_files_of_an_image_are_the_same_with_and_without_mirrors(
    chain: Chain, make_project: Callable[..., Project]
) -> None:
    outside = make_project()
    assert _locked(outside) == chain.bootstrapped
    built = Digest(outside.done("build")["records"][0]["digest"])
    there = Layout(outside.root / ".rocm-torch/layout").manifest(built)
    here = Layout(chain.project.root / ".rocm-torch/layout").manifest(Digest(chain.build["digest"]))
    # Where the base came from is an input and told by a label: every file of the image is equal.
    assert there.layers == here.layers


def test_a_cell_of_wheels_is_locked_and_built_from_a_folder(
    chain: Chain, inside: Inside, tmp_path: Path
) -> None:
    house, matrix, lock = (tmp_path / name for name in ("house", "wheels.yaml", "wheels.lock"))
    house.mkdir()
    for file, content in (torch_wheels() | other_wheels()).items():
        (house / file).write_bytes(content)
    document = yaml.safe_load((chain.project.root / "matrix.yaml").read_text("utf-8"))
    document["lanes"] = {"wheels": WHEEL_LANE}
    matrix.write_text(yaml.safe_dump(document), "utf-8")
    wheel_facts(chain.project, "simple")
    options = ("--matrix", str(matrix), "--lock", str(lock), "--wheelhouse", str(house))
    (entry,) = chain.project.done(*options, "lock")["cells"].values()
    assert entry["base"]["origin"] == "registry"
    assert {wheel["file"] for wheel in entry["wheels"]} == {path.name for path in house.iterdir()}
    words = [str(path) for path in (chain.project.root, matrix, lock, house)]
    done = subprocess.run(
        [*inside.enter, sys.executable, "-c", _BUILD, *words],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    layout = Layout(chain.project.root / ".rocm-torch/layout")
    assert layout.manifest(Digest(done.stdout.strip())).layers


def test_without_the_settings_a_lock_fails_with_what_it_could_not_reach_and_what_would_help(
    chain: Chain, inside: Inside, tmp_path: Path
) -> None:
    empty = tmp_path / "site.yaml"
    empty.touch()
    asked = len(inside.mirror.asked)
    result = chain.project.call("--site", str(empty), "lock", "--update", "--json")
    problems = {found["code"]: found for found in json.loads(result.stdout)["problems"]}
    assert result.returncode == 1
    # A name that cannot be resolved is not waited for, and asked for once.
    assert set(problems) == {"ARCHIVE_UNREACHABLE", "REGISTRY_UNKNOWN_HOST"}
    archive, registry = problems["ARCHIVE_UNREACHABLE"], problems["REGISTRY_UNKNOWN_HOST"]
    assert archive["where"] == f"{DEBIAN}/dists/trixie/InRelease"
    assert f'packages: {{"{DEBIAN}"' in archive["fix"]
    assert "registry-1.docker.io" in registry["where"]
    assert 'mirrors: {"docker.io"' in registry["fix"]
    assert len(inside.mirror.asked) == asked


def test_without_the_settings_a_release_fails_before_it_builds(
    chain: Chain, tmp_path: Path
) -> None:
    empty = tmp_path / "site.yaml"
    empty.touch()
    assert chain.project.registry
    words = ("release", "--fresh", "--registry", chain.project.registry, "--json")
    result = chain.project.call("--site", str(empty), *words)
    (problem,) = json.loads(result.stdout)["problems"]
    assert (result.returncode, problem["code"]) == (1, "ARCHIVE_UNREACHABLE")
    assert f'packages: {{"{DEBIAN}"' in problem["fix"]


def test_a_builder_that_cannot_fetch_a_base_names_the_setting(
    chain: Chain, inside: Inside, tmp_path: Path
) -> None:
    without = tmp_path / "site.yaml"
    without.write_text(yaml.safe_dump({"packages": _packages(inside)}), "utf-8")
    other = tmp_path / "other.lock"  # a base that the engine does not have from before
    text = (chain.project.root / "matrix.lock").read_text("utf-8")
    other.write_text(text.replace(chain.mirrored.base, "sha256:" + "1" * 64), "utf-8")
    files = ("--site", str(without), "--lock", str(other))
    result = chain.project.call(*files, "build", "--force", "--json")
    told = {problem["code"]: problem for problem in json.loads(result.stdout)["problems"]}
    assert result.returncode == 1
    problem = told["BUILD_FAILED"]
    assert "docker.io/library/debian" in problem["what"]
    assert 'mirrors: {"docker.io"' in problem["fix"]


def test_offline_nothing_is_asked_of_anybody(chain: Chain, inside: Inside, tmp_path: Path) -> None:
    asked = len(inside.mirror.asked)
    chain.project.done("lock", "--offline")
    result = chain.project.call("--lock", str(tmp_path / "new.lock"), "lock", "--offline")
    assert result.returncode == 2
    assert "UNLOCKED" in result.stderr
    assert not (tmp_path / "new.lock").exists()
    assert len(inside.mirror.asked) == asked


def test_an_archive_that_moved_is_told_and_not_built_from(chain: Chain, tmp_path: Path) -> None:
    assert chain.project.call("lock", "--check").returncode == 0
    old = tmp_path / "old.lock"
    text = (chain.project.root / "matrix.lock").read_text("utf-8")
    entry = _locked(chain.project)
    main = entry.archives[0]
    text = text.replace(main.sha256, "sha256:" + "0" * 64)
    old.write_text(text.replace(main.to_json()["date"], "2026-01-02T03:04:05+00:00"), "utf-8")
    told = f"archive moved: trixie 2026-01-02 -> {main.date:%Y-%m-%d}"
    for words in (("lock", "--check"), ("build", "--force")):
        result = chain.project.call("--lock", str(old), *words)
        assert result.returncode == 2
        assert told in result.stderr
        assert f"rocm-torch --lock {old} lock --update" in result.stderr
