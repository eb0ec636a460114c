"""Settings of a site: which are taken, what is told of the others, and that no image has them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import CELL, LOCKED

from builder.errors import RefusedError
from builder.facts import load_facts
from builder.matrix.site import Site, load_site, read_site
from builder.oci import Digest
from builder.plan.bake import Places, base_source, target

DEBIAN = "http://deb.debian.org/debian"
FULL = f"""
mirrors:
  docker.io: registry.site:5000/hub
  docker.io/rocm: localhost:5001
packages:
  {DEBIAN}: http://mirror.site/debian/
indexes:
  https://download.pytorch.org/whl: https://wheels.site/pytorch
keys:
  https://repo.radeon.com/rocm/rocm.gpg.key: /etc/site/rocm.gpg
python: https://mirror.site/python
"""


def problems(text: str) -> list[tuple[str, str | None]]:
    with pytest.raises(RefusedError) as caught:
        load_site(text, "site.yaml")
    return [(problem.code, problem.where) for problem in caught.value.problems]


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}", "mirrors: {}\n"])
def test_nothing_set_is_a_site_that_reaches_everything(text: str) -> None:
    site = load_site(text, "site.yaml")
    assert site == Site()
    assert str(site.base("debian:13")) == "docker.io/library/debian:13"
    assert site.package_url(DEBIAN) == DEBIAN
    assert site.apt_sources(load_facts().distributions["debian13"]) is None


def test_all_settings_are_read() -> None:
    site = load_site(FULL, "site.yaml")
    assert set(site.model_dump(exclude_defaults=True)) == set(Site.model_fields)


@pytest.mark.parametrize(
    ("ref", "served"),
    [
        ("debian:13", "registry.site:5000/hub/library/debian:13"),
        ("docker.io/ourorg/base:1", "registry.site:5000/hub/ourorg/base:1"),
        ("docker.io/rocm/pytorch:latest", "localhost:5001/pytorch:latest"),
        ("docker.io/rocmother/x:1", "registry.site:5000/hub/rocmother/x:1"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        (f"debian:13@{LOCKED.base}", f"registry.site:5000/hub/library/debian:13@{LOCKED.base}"),
    ],
)
def test_the_longest_mirror_that_holds_a_base_is_asked(ref: str, served: str) -> None:
    assert str(load_site(FULL, "site.yaml").base(ref)) == served


def test_a_mirror_of_packages_serves_what_lies_below_it_and_nothing_beside() -> None:
    site = load_site(FULL, "site.yaml")
    assert site.package_url(DEBIAN) == "http://mirror.site/debian"
    assert site.package_url(f"{DEBIAN}/dists/x") == "http://mirror.site/debian/dists/x"
    assert site.package_url(f"{DEBIAN}-security") == f"{DEBIAN}-security"


def test_a_sources_list_for_builds_names_the_mirror_and_the_same_suites_and_keys() -> None:
    facts = load_facts().distributions["debian13"]
    text = load_site(FULL, "site.yaml").apt_sources(facts) or ""
    assert "URIs: http://mirror.site/debian\n" in text
    assert f"URIs: {DEBIAN}-security\n" in text
    assert text.count("Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n") == 2
    assert "Suites: trixie trixie-updates\n" in text


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("mirors: {}", "UNKNOWN_KEY", 1),
        ("\nmirrors:\n  docker.io: https://r.site", "INVALID_VALUE", 3),
        ("mirrors:\n  docker.io: bare", "INVALID_VALUE", 2),
        ("mirrors:\n  docker.io: r.site/hub:1", "INVALID_VALUE", 2),
        ("packages:\n  http://a/b: mirror.site/b", "INVALID_VALUE", 2),
        ("packages:\n  'http://a/b': 'http://x [trusted=yes]'", "INVALID_VALUE", 2),
        ("packages: [http://a/b]", "WRONG_TYPE", 1),
        ("python: 3", "WRONG_TYPE", 1),
        ("keys:\n  https://a/key: ../key", "INVALID_VALUE", 2),
        ("- mirrors", "WRONG_TYPE", 1),
        ("mirrors: {a.b: c.d, a.b: e.f}", "DUPLICATE_KEY", 1),
        ("mirrors: {a: }}", "YAML_SYNTAX", 1),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, code: str, line: int) -> None:
    assert problems(text) == [(code, f"site.yaml:{line}")]


@pytest.mark.parametrize("place", ["key", "value"])
def test_a_login_in_an_address_is_refused_and_not_shown(place: str) -> None:
    secret = "http://me:hunter2@a/b"  # noqa: S105
    pair = f"'{secret}': http://c/d" if place == "key" else f"http://c/d: '{secret}'"
    with pytest.raises(RefusedError, match="LOGIN_IN_SETTINGS") as caught:
        load_site(f"packages:\n  {pair}\n", "site.yaml")
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_site_or_a_refusal(text: str) -> None:
    with contextlib.suppress(RefusedError):
        assert isinstance(load_site(text, "site.yaml"), Site)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="NO_SITE"):
        read_site(tmp_path / "none.yaml", "none.yaml")


PLACES = Places(Path("/s/context"), (), Path("/s/layout"), Path("/s/export"))


def test_a_build_gets_mirror_and_sources_list_and_the_same_names_and_labels() -> None:
    site = load_site(FULL, "site.yaml")
    here = replace(
        PLACES,
        base_ref=site.base(CELL.base.ref),
        secrets=(("apt-sources", Path("/s/debian13.sources")),),
    )
    remote = replace(LOCKED, origin="registry")
    inputs = Digest.of(b"inputs")
    plain = target(CELL, remote, inputs, PLACES, image="ourorg/x")
    found = target(CELL, remote, inputs, here, image="ourorg/x")
    served = f"docker-image://registry.site:5000/hub/library/debian@{LOCKED.base}"
    assert found.pop("contexts") == {"debian:13": served}
    assert found.pop("secret") == ["id=apt-sources,src=/s/debian13.sources"]
    del plain["contexts"]
    assert found == plain


def test_what_an_index_serves_is_found_and_told_by_its_canonical_name() -> None:
    site = load_site(FULL, "site.yaml")
    torch = "rocm6.2.4/torch-2.7.1%2Brocm6.2.4-cp311-cp311-linux_x86_64.whl"
    served = f"https://wheels.site/pytorch/{torch}"
    assert site.index_url(f"https://download.pytorch.org/whl/{torch}") == served
    assert site.canonical_index_url(served) == f"https://download.pytorch.org/whl/{torch}"
    assert site.index_url("https://pypi.org/simple") == "https://pypi.org/simple"
    assert site.canonical_index_url("https://wheels.site/pytorch-other/x") is None


def test_a_bootstrapped_base_is_asked_of_no_registry() -> None:
    served = load_site(FULL, "site.yaml").base(CELL.base.ref)
    source = base_source(CELL, LOCKED, Path("/s/layout"), served=served)
    assert source == f"oci-layout:///s/layout@{LOCKED.base}"
