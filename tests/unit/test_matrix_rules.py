from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from builder.facts import Facts, load_facts
from builder.matrix.explain import explain
from builder.matrix.families import FAMILIES, Combination
from builder.matrix.load import Matrix, read_matrix
from builder.matrix.nearest import nearest
from builder.matrix.rules import RULES, judge, rejected
from builder.matrix.rules.lifecycle import ended

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 12, 1)
FACTS = load_facts()
WHEEL = Combination("a", "wheel", "ubuntu22.04", "6.2.4", "2.7.1", "3.11", "runtime")
AMD = Combination("a", "rocm-pytorch", "ubuntu24.04", "10.1.0", "2.14.0", "3.12", "runtime")
PLAIN = Combination("a", "amd-wheel", "debian13", "10.1.0", "2.14.0", "3.12", "runtime")
DEV = Combination("a", "rocm-dev", "ubuntu24.04", "7.2.4", "2.13.0", "3.12", "devel")


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return read_matrix(ROOT / "matrix.yaml", "matrix.yaml", FACTS)


def code(combination: Combination, facts: Facts = FACTS) -> str | None:
    verdicts = judge(combination, facts)
    return verdicts[-1].code if rejected(verdicts) else None


@pytest.mark.parametrize(
    ("combination", "expected"),
    [
        (WHEEL, None),
        (AMD, None),
        (PLAIN, None),
        (DEV, None),
        (replace(AMD, python="3.11"), "NO_SUCH_UPSTREAM_TAG"),
        (replace(AMD, distro="debian12"), "NO_SUCH_UPSTREAM_TAG"),
        (replace(AMD, flavour="devel"), "FAMILY_HAS_NO_SUCH_FLAVOUR"),
        (replace(WHEEL, python="3.14"), "WHEEL_HAS_NO_SUCH_PYTHON"),
        (replace(WHEEL, torch="2.8.0"), "INDEX_HAS_NO_SUCH_TORCH"),
        (replace(WHEEL, rocm="10.1.0"), "NO_SUCH_WHEEL_INDEX"),
        (replace(WHEEL, gfx=("gfx1151",)), "GFX_NOT_SERVED"),
        (replace(WHEEL, rocm="6.4.0", torch="2.8.0", gfx=("gfx906",)), "GFX_NOT_SERVED"),
        (replace(WHEEL, gfx=("gfx906",)), None),
        (replace(WHEEL, flavour="devel"), None),
        (replace(WHEEL, flavour="devel", distro="debian12"), "COMPONENT_HAS_NO_PACKAGE"),
        (replace(PLAIN, torch="2.11.0"), "AMD_HAS_NO_SUCH_WHEEL"),
        (replace(PLAIN, torch="2.13.0", python="3.11"), "WHEEL_HAS_NO_SUCH_PYTHON"),
        (replace(PLAIN, flavour="slim-gfx942"), None),
        (replace(PLAIN, flavour="slim-gfx803"), "GFX_NOT_SERVED"),
        (replace(DEV, distro="debian12"), "NO_SUCH_DEV_IMAGE"),
        (replace(DEV, torch="2.7.1"), "INDEX_HAS_NO_SUCH_TORCH"),
        (replace(DEV, python="3.9"), "WHEEL_HAS_NO_SUCH_PYTHON"),
        (replace(WHEEL, python_packages=("torchvision==0.21.0",)), "TORCHVISION_MISMATCH"),
        (replace(WHEEL, python_packages=("torchvision==0.22.1",)), None),
        (replace(WHEEL, python_packages=("triton==3.3.0",)), "TRITON_CONFLICT"),
        (replace(WHEEL, python_packages=("numpy==2.3.4",)), None),
        (replace(AMD, python_packages=("numpy==2.3.4",)), "PACKAGES_NEED_WHEELS"),
    ],
)
def test_a_rule_says_why_a_combination_cannot_be(
    combination: Combination, expected: str | None
) -> None:
    assert code(combination) == expected


def test_a_c_library_below_the_floor_of_the_wheel_is_refused() -> None:
    old = replace(FACTS.distributions["ubuntu22.04"], glibc="2.27")
    facts = replace(FACTS, distributions={**FACTS.distributions, "ubuntu22.04": old})
    assert code(WHEEL, facts) == "LIBC_BELOW_FLOOR"


def test_a_c_library_that_nobody_read_warns_and_does_not_reject() -> None:
    old = replace(FACTS.distributions["ubuntu22.04"], glibc="2.27", confidence="inferred")
    facts = replace(FACTS, distributions={**FACTS.distributions, "ubuntu22.04": old})
    verdicts = judge(WHEEL, facts)
    assert [item.code for item in verdicts] == ["LIBC_BELOW_FLOOR"]
    assert not rejected(verdicts)


def test_numpy_2_is_refused_beside_a_torch_that_was_built_for_numpy_1() -> None:
    wheel = replace(FACTS.torch_wheels["rocm6.2.4", "2.7.1"], torch="2.1.2", index="rocm6.0")
    facts = replace(FACTS, torch_wheels={("rocm6.0", "2.1.2"): wheel})
    old = replace(WHEEL, rocm="6.0.0", torch="2.1.2")
    assert code(replace(old, python_packages=("numpy==2.0.0",)), facts) == "NUMPY_ABI"
    made = FAMILIES["wheel"].specify(old, facts)
    assert made.wheels is not None
    assert "numpy<2" in made.wheels.requirements


def test_a_repository_whose_key_is_not_known_is_not_used() -> None:
    index = replace(FACTS.wheel_indexes["7.14.0"], rocm="10.1.0")
    facts = replace(FACTS, wheel_indexes={"10.1.0": index})
    wanted = replace(WHEEL, rocm="10.1.0", torch="2.14.1", flavour="opencl")
    assert code(wanted, facts) == "KEY_FINGERPRINT_UNKNOWN"


def test_a_wheel_that_its_index_dropped_is_a_warning() -> None:
    verdicts = judge(replace(PLAIN, rocm="10.0.0", torch="2.13.0"), FACTS)
    assert [item.code for item in verdicts] == ["WHEEL_GONE"]
    assert not rejected(verdicts)


def test_every_rule_is_about_a_family_that_there_is() -> None:
    assert all(rule.families <= FAMILIES.keys() for rule in RULES)


def test_the_matrix_has_the_size_that_was_promised(matrix: Matrix) -> None:
    assert len(matrix.cells) >= 90
    assert len({cell.distro for cell in matrix.cells}) >= 8
    assert len({cell.rocm for cell in matrix.cells if cell.rocm}) >= 7
    assert matrix.tags["6.2-py311"].id == "rocm6.2.4-torch2.7.1-py311-ubuntu22.04"


def test_every_base_of_amd_is_a_tag_in_the_facts(matrix: Matrix) -> None:
    for cell in matrix.cells:
        if cell.base.family == "rocm-pytorch":
            name, _, tag = cell.base.ref.partition(":")
            assert name == "docker.io/rocm/pytorch"
            image = FACTS.upstream_tags[tag]
            assert (image.rocm, image.torch) == (cell.rocm, cell.torch)


def test_every_wheel_is_an_exact_pin_of_the_rocm_build(matrix: Matrix) -> None:
    for cell in matrix.cells:
        if cell.wheels is not None:
            pins = [Requirement(text) for text in cell.wheels.requirements]
            torch = next(pin for pin in pins if pin.name == "torch")
            assert str(torch.specifier) == f"=={cell.expected.torch_version}"
            assert "rocm" in cell.expected.torch_version


def test_every_reason_comes_with_what_does_exist(matrix: Matrix) -> None:
    for item in matrix.excluded:
        near = nearest(item.combination, FACTS)
        assert near, item
        assert item.combination.id not in near
        assert item.source


def test_no_string_is_a_tag_of_two_cells_and_every_moving_tag_can_be_explained(
    matrix: Matrix,
) -> None:
    owned = [tag for cell in matrix.cells for tag in matrix.tags_of(cell)]
    assert len(owned) == len(set(owned))
    for tag in owned:
        found = explain(tag, matrix, FACTS, TODAY)
        assert found is not None
        assert found.cell == matrix.tags[tag].id
        assert len(tag) <= 128
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", tag)


def test_the_story_of_6_2_py311_says_why_it_is_not_amds_image(matrix: Matrix) -> None:
    found = explain("6.2-py311", matrix, FACTS, TODAY)
    assert found is not None
    story = " ".join(found.story)
    assert "AMD publishes no rocm/pytorch image" in story
    assert "torch==2.7.1+rocm6.2.4" in story


def test_a_tag_that_there_is_none_of_has_a_reason_and_neighbours(matrix: Matrix) -> None:
    found = explain("10.1-py311", matrix, FACTS, TODAY)
    assert found is not None
    assert found.cell is None
    assert "Python 3.12 on ubuntu24.04" in " ".join(found.story)
    assert "10.1-py312" in found.nearest
    assert all(tag in matrix.tags for tag in found.nearest)


def test_latest_is_the_newest_of_the_default_lane(matrix: Matrix) -> None:
    found = explain("latest", matrix, FACTS, TODAY)
    assert found is not None
    assert found.cell == "rocm10.1.0-torch2.14.0-py312-ubuntu24.04"


def test_a_dated_tag_is_explained_as_its_cell(matrix: Matrix) -> None:
    name = "6.2.4-torch2.7.1-py311-ubuntu22.04-20261130-0123abcd"
    found = explain(name, matrix, FACTS, TODAY)
    assert found is not None
    assert found.cell == "rocm6.2.4-torch2.7.1-py311-ubuntu22.04"


@pytest.mark.parametrize("asked", ["hello", "", "6.2-py", "6.2-py311-", "x" * 200, "6.2 py311"])
def test_what_is_no_tag_has_no_story(matrix: Matrix, asked: str) -> None:
    assert explain(asked, matrix, FACTS, TODAY) is None


@pytest.mark.parametrize("asked", ["9.0", "6.2-py399", "cpu-py39", "99.1-torch9.9-py311-beos5"])
def test_what_cannot_be_has_a_code(matrix: Matrix, asked: str) -> None:
    found = explain(asked, matrix, FACTS, TODAY)
    assert found is not None
    assert found.cell is None
    assert found.code
    assert found.story


def test_the_end_of_life_is_a_warning_from_the_day_after(matrix: Matrix) -> None:
    cell = matrix.tags["10.1-py310"]
    last = FACTS.lifecycles["python", "3.10"].end_of_life
    assert [item.code for item in ended(cell, FACTS, date(2026, 11, 1))] == ["PYTHON_END_OF_LIFE"]
    assert not list(ended(cell, FACTS, last))
    assert not any(item.rejects for item in ended(cell, FACTS, TODAY))
