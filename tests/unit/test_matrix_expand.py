from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from builder.facts import Facts, load_facts
from builder.matrix.expand import expand
from builder.matrix.load import load_matrix
from builder.matrix.nearest import nearest
from builder.matrix.schema import MatrixSource

if TYPE_CHECKING:
    from pathlib import Path

AXES = {
    "distro": ["debian12", "debian13"],
    "torch": ["1.13.1", "2.6.0"],
    "python": ["3.11", "3.13"],
}


def source(lanes: dict[str, Any]) -> MatrixSource:
    filled = {name: {"purpose": "a test", "base": "distro", **lane} for name, lane in lanes.items()}
    return MatrixSource.model_validate({"version": 1, "image": "a/b", "lanes": filled})


@given(st.data())
def test_the_order_of_lanes_axes_and_values_does_not_matter(data: st.DataObject) -> None:
    flavours = {"one": ["runtime"], "two": ["devel", "opencl"]}
    plain = {name: {**AXES, "flavour": values} for name, values in flavours.items()}
    shuffled = {
        name: {
            axis: data.draw(st.permutations(plain[name][axis]))
            for axis in data.draw(st.permutations(sorted(plain[name])))
        }
        for name in data.draw(st.permutations(sorted(plain)))
    }
    assert expand(source(shuffled), load_facts()) == expand(source(plain), load_facts())


def test_each_combination_is_a_cell_or_has_a_reason() -> None:
    expansion = expand(source({"cpu": AXES}), load_facts())
    assert len(expansion.cells) == 2
    codes = [item.code for item in expansion.excluded]
    assert codes.count("DISTRO_HAS_NO_SUCH_TORCH") == 4
    assert codes.count("DISTRO_HAS_NO_SUCH_PYTHON") == 2
    made = {cell.id for cell in expansion.cells}
    for item in expansion.excluded:
        assert item.source
        near = nearest(item.combination, load_facts())
        assert set(near) <= made
        assert json.dumps(item.to_json(near))


def test_the_nearest_combination_shares_most_with_what_was_asked_for() -> None:
    lane = {"distro": ["debian12"], "torch": ["2.6.0"], "python": ["3.11"]}
    (item,) = expand(source({"cpu": lane}), load_facts()).excluded
    assert nearest(item.combination, load_facts())[0] == "cpu-torch1.13.1-py311-debian12"


def test_a_flavour_without_contents_is_dropped_with_what_there_is() -> None:
    expansion = expand(source({"cpu": {**AXES, "flavour": ["slim-gfx942"]}}), load_facts())
    reasons = [i.reason for i in expansion.excluded if i.code == "FAMILY_HAS_NO_SUCH_FLAVOUR"]
    assert len(reasons) == 8
    assert "runtime" in reasons[0]


def test_a_flavour_that_a_distribution_does_not_package_is_dropped_there() -> None:
    expansion = expand(source({"cpu": {**AXES, "flavour": ["devel", "opencl"]}}), load_facts())
    assert {(one.distro, one.flavour) for one in expansion.cells} == {
        ("debian13", "devel"),
        ("debian13", "opencl"),
    }
    packages = {one.flavour: set(one.packages) for one in expansion.cells}
    assert packages["devel"] ^ packages["opencl"] == {
        "hipcc",
        "hipify-perl",
        "clinfo",
        "rocm-opencl-icd",
    }
    codes = [item.code for item in expansion.excluded if item.combination.distro == "debian12"]
    assert codes.count("COMPONENT_HAS_NO_PACKAGE") == 2


def test_a_distribution_without_torch_has_no_cells() -> None:
    bare = Facts(load_facts().distributions, {}, load_facts().contents)
    expansion = expand(source({"cpu": AXES}), bare)
    assert {item.code for item in expansion.excluded} == {"DISTRO_HAS_NO_SUCH_TORCH"}


def test_an_inferred_fact_warns_and_does_not_reject(tmp_path: Path) -> None:
    write_facts(tmp_path, "inferred")
    lane = {"distro": ["tiny1"], "torch": ["0.1.0"], "python": ["3.12"]}
    expansion = expand(source({"tiny": lane}), load_facts(tmp_path))
    assert [cell.id for cell in expansion.cells] == ["cpu-torch0.1.0-py312-tiny1"]
    assert [item.code for item in expansion.warnings] == ["DISTRO_HAS_NO_SUCH_PYTHON"]


def test_a_test_makes_a_small_cell_from_facts_of_its_own(tmp_path: Path) -> None:
    write_facts(tmp_path, "seen")
    text = (
        "{version: 1, image: a/b, lanes: {tiny: {purpose: a test, base: distro, "
        'distro: [tiny1], torch: ["0.1.0"], python: ["3.13"]}}}'
    )
    (cell,) = load_matrix(text, "tiny.yaml", load_facts(tmp_path)).cells
    assert cell.packages == ("python3-minimal",)
    assert cell.base.ref == "docker.io/library/tiny:1"
    assert cell.expected.contents == ("gcc",)


def write_facts(folder: Path, confidence: str) -> None:
    told = {"source": "a test", "confidence": confidence}
    distribution = {
        "name": "tiny1",
        "title": "Tiny 1",
        "os_id": "tiny",
        "version_id": "1",
        "base_ref": "docker.io/library/tiny:1",
        "package_manager": "apt",
        "python": "3.13",
        "glibc": "2.41",
    }
    torch = {
        "distro": "tiny1",
        "torch": "0.1.0",
        "python": "3.13",
        "torch_version": "0.1.0",
        "packages": ["python3-minimal"],
    }
    contents = {"family": "distro", "flavour": "runtime", "components": ["gcc"]}
    subjects: dict[str, dict[str, Any]] = {
        "distributions": distribution,
        "distro_torch": torch,
        "contents": contents,
    }
    for subject, entry in subjects.items():
        (folder / f"{subject}.yaml").write_text(json.dumps([{**entry, **told}]))
