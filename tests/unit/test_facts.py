from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builder.errors import RefusedError
from builder.facts import SUBJECTS, load_facts
from builder.oci import Reference

if TYPE_CHECKING:
    from pathlib import Path

DISTRIBUTION = """\
- {name: debian13, title: Debian 13, os_id: debian, version_id: "13", base_ref: here/base:13,
   package_manager: apt, python: "3.13", glibc: "2.41", source: a test, confidence: seen}
"""


def test_each_fact_has_a_source_and_the_day_it_was_read() -> None:
    subjects = load_facts().subjects
    assert subjects.keys() == SUBJECTS.keys()
    for name, entries in subjects.items():
        assert entries, name
        for entry in entries:
            assert entry.source.strip(), entry
            assert entry.read, entry


def test_facts_agree_with_each_other() -> None:
    facts = load_facts()
    for wheel in facts.torch_wheels.values():
        assert wheel.platform in facts.libc_floors
        assert wheel.index in {index.name for index in facts.wheel_indexes.values()}
    for index in facts.wheel_indexes.values():
        assert set(index.without_blas) <= set(index.gfx)
    for image in facts.upstream_images.values():
        assert image.tag in facts.upstream_tags


def test_a_gpu_is_served_where_torch_and_its_blas_both_have_it() -> None:
    index = load_facts().wheel_indexes["6.4.0"]
    assert "gfx906" in index.gfx
    assert "gfx906" not in index.served


def test_the_base_references_are_written_out_in_full() -> None:
    for distribution in load_facts().distributions.values():
        assert str(Reference.parse(distribution.base_ref)) == distribution.base_ref


def test_a_distribution_builds_torch_for_its_own_python() -> None:
    facts = load_facts()
    for name, builds in facts.distro_torch.items():
        assert {build.python for build in builds} == {facts.distributions[name].python}


def test_the_packages_are_sorted_and_unique() -> None:
    for builds in load_facts().distro_torch.values():
        for build in builds:
            assert list(build.packages) == sorted(set(build.packages))


def test_the_facts_are_read_once() -> None:
    assert load_facts() is load_facts()


def test_facts_come_from_another_folder_and_subjects_may_be_absent(tmp_path: Path) -> None:
    (tmp_path / "distributions.yaml").write_text(DISTRIBUTION)
    facts = load_facts(tmp_path)
    assert facts.distributions["debian13"].base_ref == "here/base:13"
    assert not facts.distro_torch


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("distributions", DISTRIBUTION.replace('"3.13"', "3.13"), "string"),
        ("distributions", DISTRIBUTION.replace("source: a test, ", ""), "required"),
        ("distributions", DISTRIBUTION.replace("glibc", "glib"), "glib"),
        ("distributions", DISTRIBUTION + DISTRIBUTION, "two entries"),
        ("distributions", "- {", "YAML"),
        ("distros", "[]", "no subject"),
        (
            "distro_torch",
            "- {distro: debian9, torch: '1.0.0', python: '3.5', torch_version: '1', packages: [],"
            " source: a test, confidence: seen}",
            "debian9",
        ),
    ],
)
def test_facts_that_are_none_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(RefusedError, match="FACTS_INVALID") as caught:
        load_facts(tmp_path)
    assert said in str(caught.value)
    assert f"facts/{name}.yaml" in str(caught.value)
