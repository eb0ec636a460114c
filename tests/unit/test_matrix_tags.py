from __future__ import annotations

import random  # noqa: TC003 - hypothesis reads the annotation
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import RefusedError
from builder.facts import load_facts
from builder.matrix.cells import Base, Cell, Expected, Ranking
from builder.matrix.checks import tie_problems
from builder.matrix.ids import cell_id
from builder.matrix.load import load_matrix
from builder.matrix.tags import claimed_tags, dated_tag, resolve_owners, tags_of
from builder.oci import Digest, is_tag

EPOCH = 1_730_419_200
PREFER = Ranking(default=True, distro=("ubuntu24.04", "ubuntu22.04"), python=("3.12", "3.11"))


def cell(
    rocm: str | None = "6.2.4",
    torch: str = "2.7.1",
    python: str = "3.11",
    distro: str = "ubuntu22.04",
    flavour: str = "runtime",
    *,
    lane: str = "lane",
    ranking: Ranking = PREFER,
) -> Cell:
    return Cell(
        id=cell_id(rocm, torch, python, distro, flavour),
        lane=lane,
        distro=distro,
        rocm=rocm,
        torch=torch,
        python=python,
        flavour=flavour,
        base=Base("wheel", f"docker.io/library/{distro}"),
        expected=Expected(torch, "hip"),
        ranking=ranking,
    )


def test_a_rocm_cell_has_the_forms_of_the_design() -> None:
    one = cell()
    assert one.id == "rocm6.2.4-torch2.7.1-py311-ubuntu22.04"
    assert tags_of(one, resolve_owners([one]).tags) == (
        "6.2.4-torch2.7.1-py311-ubuntu22.04",
        "6.2-torch2.7-py311-ubuntu22.04",
        "6.2-py311-ubuntu22.04",
        "6.2-py311",
        "6.2",
        "latest",
    )


def test_a_flavour_is_the_last_part_of_each_tag() -> None:
    one = cell(flavour="devel")
    assert "6.2-py311-devel" in claimed_tags(one)
    assert all(tag.endswith("-devel") for tag in claimed_tags(one))
    assert dated_tag(one, EPOCH, Digest.of(b"")).endswith("-20241101-e3b0c442-devel")


def test_the_dated_tag_carries_day_and_digest() -> None:
    assert (
        dated_tag(cell(), EPOCH, Digest.of(b""))
        == "6.2.4-torch2.7.1-py311-ubuntu22.04-20241101-e3b0c442"
    )


def test_latest_is_never_a_cpu_image() -> None:
    one = cell(None)
    assert claimed_tags(one)[-1] == "cpu"
    assert "latest" not in resolve_owners([one]).tags


def test_the_widest_tags_come_from_the_default_lane() -> None:
    newer = cell("10.1.0", lane="next", ranking=Ranking())
    tags = resolve_owners([newer, cell()]).tags
    assert tags["latest"].rocm == "6.2.4"
    assert "10.1" not in tags
    assert tags["10.1-py311"] is newer


def test_the_newest_by_version_owns_a_tag() -> None:
    cells = [cell(rocm) for rocm in ("7.2.4", "7.14.1", "10.0.0", "10.1.0", "7.14.0")]
    tags = resolve_owners(cells).tags
    assert tags["latest"].rocm == "10.1.0"
    assert tags["7.14-py311"].rocm == "7.14.1"
    assert resolve_owners([cell(torch="2.9.1"), cell(torch="2.10.0")]).tags["6.2"].torch == "2.10.0"


def test_the_prefer_lists_decide_between_cells_equally_new() -> None:
    cells = [
        cell(python=python, distro=distro)
        for python in ("3.11", "3.12")
        for distro in ("ubuntu22.04", "ubuntu24.04")
    ]
    tags = resolve_owners(cells).tags
    assert tags["6.2-py311"].distro == "ubuntu24.04"
    assert tags["latest"].id == "rocm6.2.4-torch2.7.1-py312-ubuntu24.04"


def test_a_tie_is_refused_and_names_both_cells() -> None:
    cells = [cell(ranking=Ranking()), cell(distro="debian12", ranking=Ranking())]
    (told,) = map(str, tie_problems(resolve_owners(cells).ties, str))
    assert "TAG_CLAIMED_TWICE" in told
    assert all(item.id in told for item in cells)
    assert "6.2-py311" in told


def test_two_lanes_need_to_agree_on_what_they_prefer() -> None:
    jammy, noble = Ranking(distro=("a1", "b1")), Ranking(distro=("b1", "a1"))
    one = cell(distro="a1", lane="x", ranking=jammy)
    assert resolve_owners([one, cell(distro="b1", lane="y", ranking=noble)]).ties
    agreed = resolve_owners([one, cell(distro="b1", lane="y", ranking=jammy)])
    assert agreed.tags["6.2-py311"] is one


def test_a_tie_in_the_matrix_is_told_with_both_lines_and_the_fix() -> None:
    text = """\
version: 1
image: a/b
lanes:
  one:
    purpose: a test
    base: distro
    default: true
    distro: ["debian13"]
    torch: ["2.6.0"]
    python: ["3.13"]
  two:
    purpose: a test
    base: distro
    distro: ["debian12"]
    torch: ["1.13.1"]
    python: ["3.11"]
"""
    facts = load_facts()
    assert load_matrix(text, "matrix.yaml", facts).tags["cpu"].distro == "debian13"
    builds = {
        name: tuple(
            replace(facts.distro_torch["debian13"][0], distro=build.distro) for build in group
        )
        for name, group in facts.distro_torch.items()
    }
    twin = type(facts)(facts.distributions, builds, facts.contents)
    text = text.replace("1.13.1", "2.6.0").replace("3.11", "3.13")
    with pytest.raises(RefusedError, match="TAG_CLAIMED_TWICE") as caught:
        load_matrix(text, "matrix.yaml", twin)
    (problem,) = caught.value.problems
    assert "matrix.yaml:8" in problem.what
    assert "matrix.yaml:14" in problem.what
    assert "prefer" in str(problem.fix)
    settled = text.replace("purpose:", "prefer: {distro: [debian12, debian13]}\n    purpose:")
    assert load_matrix(settled, "matrix.yaml", twin).tags["cpu-py313"].distro == "debian12"


versions = st.builds("{}.{}.{}".format, *[st.integers(0, 12)] * 3)
cells = st.builds(
    cell,
    st.none() | versions,
    versions,
    st.builds("3.{}{}".format, st.integers(1, 20), st.sampled_from(["", "t"])),
    st.builds("{}{}".format, st.sampled_from(["debian", "ubi", "ubuntu2"]), versions)
    | st.sampled_from(["debian1", "debian13", "ubi9"]),
    st.sampled_from(["runtime", "devel", "opencl", "slim-gfx942", "slim-gfx11"]),
)


@given(st.lists(cells, max_size=30), st.sampled_from([0, EPOCH, 4_000_000_000]))
def test_no_two_cells_and_no_two_forms_yield_one_string(made: list[Cell], epoch: int) -> None:
    unique = {item.id: item for item in made}.values()
    exact: set[str] = set()
    for item in unique:
        dated = dated_tag(item, epoch, Digest.of(item.id.encode()))
        forms = (dated, *claimed_tags(item))
        assert all(is_tag(tag) and not tag.endswith("-sif") for tag in forms)
        assert len(set(forms)) == len(forms)
        exact |= {dated, forms[1]}
    assert len(exact) == 2 * len(unique)
    wide = {tag for item in unique for tag in claimed_tags(item)[1:]}
    assert not wide & exact


@given(st.lists(cells, max_size=30), st.randoms(use_true_random=False))
def test_owners_do_not_depend_on_the_order_of_cells(
    made: list[Cell], shuffler: random.Random
) -> None:
    unique = list({item.id: item for item in made}.values())
    owners = resolve_owners(unique)
    shuffler.shuffle(unique)
    again = resolve_owners(unique)
    assert owners.tags == again.tags
    assert {(tie.tag, tie.one.id, tie.two.id) for tie in owners.ties} == {
        (tie.tag, tie.one.id, tie.two.id) for tie in again.ties
    }
