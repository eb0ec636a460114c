"""What a site's settings lend to a build, and what the image's own files say in its place."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from family_cells import APT, DNF, KEY_URL, family_cell
from samples import ROOT

from builder.engines.process import ProcessRunner
from builder.errors import CouldNotError
from builder.facts import load_facts
from builder.matrix.site import Site
from builder.pipeline.lent import lent
from builder.pipeline.session import Session
from builder.pipeline.workspace import Tools, Workspace
from builder.render.context import Renderer
from builder.report.progress import Silent

if TYPE_CHECKING:
    from pathlib import Path

    from builder.matrix.cells import Cell

CELL = replace(family_cell("wheel", "devel"), distro="debian13")
MIRROR = {"https://repo.radeon.com": "http://mirror.site/radeon"}


def session(folder: Path, settings: str) -> Session:
    (folder / "site.yaml").write_text(settings)
    return Session(
        workspace=Workspace(folder),
        tools=Tools(ProcessRunner(), lambda: datetime(2026, 12, 1, tzinfo=UTC), float, Silent()),
        lock_file=folder / "matrix.lock",
        matrix_file=folder / "matrix.yaml",
        site_file=folder / "site.yaml",
    )


def told(folder: Path, settings: str, cell: Cell = CELL) -> dict[str, str]:
    return {name: path.read_text() for name, path in lent(session(folder, settings), cell)}


def test_without_settings_nothing_is_lent(tmp_path: Path) -> None:
    assert told(tmp_path, "# none\n") == {}


def test_a_mirror_of_amds_packages_is_lent_as_the_file_that_the_image_has_but_for_the_address(
    tmp_path: Path,
) -> None:
    lists = told(tmp_path, 'packages: {"https://repo.radeon.com": "http://mirror.site/radeon"}')
    assert list(lists) == ["repository-amd-rocm"]
    assert "URIs: http://mirror.site/radeon/rocm/apt/6.2.4\n" in lists["repository-amd-rocm"]


@pytest.mark.parametrize(("manager", "repository"), [("apt", APT), ("dnf", DNF)])
def test_the_lent_file_has_the_lines_that_the_template_writes(
    manager: str, repository: object
) -> None:
    templates = ROOT / "templates"
    renderer = Renderer(
        {
            path.relative_to(templates).as_posix(): path.read_text()
            for path in templates.rglob("*.j2")
        }
    )
    cell = family_cell("wheel", "devel", manager)
    text = renderer.render(cell, image="a/b")["Dockerfile"].decode()
    ending = r"> /etc/(?:apt/sources\.list\.d/amd-rocm\.sources|yum\.repos\.d/amd-rocm\.repo)"
    (written,) = re.findall(rf"printf '%s\\n' \\\n((?:      '[^']*' \\\n)+)      {ending}", text)
    lines = re.findall(r"'([^']*)'", written)
    served = Site(packages=MIRROR).repository_file(cell.repositories[0], cell.package_manager)
    assert served is not None
    canonical = served.replace("http://mirror.site/radeon", "https://repo.radeon.com")
    assert canonical.splitlines() == lines


def test_a_key_is_lent_as_a_file_or_as_an_address(tmp_path: Path) -> None:
    key = tmp_path / "amd.asc"
    key.write_text("the key")
    assert told(tmp_path, f'keys: {{"{KEY_URL}": "{key}"}}') == {"key-amd-rocm": "the key"}
    address = "http://mirror.site/amd.asc"
    assert told(tmp_path, f'keys: {{"{KEY_URL}": "{address}"}}') == {"key-amd-rocm": address}


def test_a_key_file_that_is_not_there_is_told_before_the_build(tmp_path: Path) -> None:
    with pytest.raises(CouldNotError) as caught:
        told(tmp_path, f'keys: {{"{KEY_URL}": "/gone/amd.asc"}}')
    problem = caught.value.problems[0]
    assert problem.code == "KEY_NOT_THERE"
    assert "/gone/amd.asc" in problem.what


def test_the_place_of_pythons_is_lent_where_one_is_fetched(tmp_path: Path) -> None:
    settings = 'python: "https://mirror.site/python"'
    assert told(tmp_path, settings) == {"python-mirror": "https://mirror.site/python"}
    of_distro = replace(CELL, interpreter=family_cell("wheel", "devel", "dnf").interpreter)
    assert told(tmp_path, settings, of_distro) == {}


def test_ubuntus_old_list_is_lent_in_the_form_that_its_name_asks_for() -> None:
    debian = load_facts().distributions["debian13"]
    jammy = replace(debian, os_id="ubuntu", version_id="22.04")
    site = Site(packages={"http://deb.debian.org": "http://mirror.site"})
    text = site.apt_sources(jammy)
    assert text is not None
    lines = text.splitlines()
    assert lines[0] == (
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        "http://mirror.site/debian trixie main"
    )
    assert len(lines) == 3
