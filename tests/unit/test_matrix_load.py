from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import Problem, RefusedError
from builder.facts import load_facts
from builder.matrix.load import load_matrix, read_matrix
from builder.matrix.schema import LaneSource, matrix_json_schema

TWO_CELLS = Path(__file__).parents[1] / "two_cells.yaml"
GOOD = """\
version: 1
image: ourorg/rocm-torch
lanes:
  cpu:
    purpose: a test
    base: distro
    distro: ["debian13", "debian12"]
    torch: ["2.6.0", "1.13.1"]
    python: ["3.13", "3.11"]
"""


def problems(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(RefusedError) as caught:
        load_matrix(text, "matrix.yaml", load_facts())
    assert caught.value.exit_code == 2
    return caught.value.problems


def only(text: str | bytes) -> Problem:
    found = problems(text)
    assert len(found) == 1, found
    return found[0]


def test_a_matrix_of_two_cells_has_six_reasons_for_the_others() -> None:
    matrix = read_matrix(TWO_CELLS, "matrix.yaml", load_facts())
    assert [cell.id for cell in matrix.cells] == [
        "cpu-torch2.6.0-py313-debian13",
        "cpu-torch1.13.1-py311-debian12",
    ]
    assert len(matrix.excluded) == 6
    assert matrix.tags_of(matrix.cells[0]) == (
        "cpu-torch2.6.0-py313-debian13",
        "cpu-py313-debian13",
        "cpu-py313",
        "cpu",
    )
    assert matrix.references_of(matrix.cells[1])[-1] == "docker.io/ourorg/rocm-torch:cpu-py311"
    assert matrix.cells[0].expected.torch_version == "2.6.0+debian"
    assert matrix.cells[0].policy.levels == ("smoke",)


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "fix"),
    [
        ("purpose:", "purpos:", "UNKNOWN_KEY", 5, "purpose"),
        ("image:", "imagee:", "UNKNOWN_KEY", 2, "image"),
        ('"3.11"]', "3.10]", "UNQUOTED_VERSION", 9, '"3.10"'),
        ('"3.11"]', "yes]", "UNQUOTED_TEXT", 9, '"3.11"'),
        ('"3.11"]', "010]", "UNQUOTED_VERSION", 9, '"3.11"'),
        ('"3.11"]', "12:30]", "UNQUOTED_VERSION", 9, '"3.11"'),
        ('"3.11"]', "2026-01-31]", "UNQUOTED_VERSION", 9, '"3.11"'),
        ('"3.11"]', '"3.11.2"]', "INVALID_VALUE", 9, "3.13t"),
        ('"3.11"]', '"3.12"]', "UNKNOWN_AXIS_VALUE", 9, "3.11"),
        ('"debian12"]', '"debain12"]', "UNKNOWN_AXIS_VALUE", 7, "debian12"),
        ('"1.13.1"]', '"1.13.2"]', "UNKNOWN_AXIS_VALUE", 8, "1.13.1"),
        ('"1.13.1"]', '"2.6"]', "DUPLICATE_VALUE", 8, "Keep one"),
        ("base: distro", "base: distr", "UNKNOWN_VALUE", 6, "distro"),
        ("base: distro", "base: wheel", "ROCM_MISSING", 4, "rocm"),
        ("base: distro", 'base: distro\n    rocm: ["6.2"]', "ROCM_ON_THE_CPU", 7, "rocm"),
        ("base: distro", "base: distro\n    base: distro", "DUPLICATE_KEY", 7, "Keep one"),
        ("base: distro", "base: !!python/object:os.system distro", "YAML_TAG", 6, "Remove"),
        ("  cpu:", "  3.10:", "KEY_NOT_TEXT", 4, '"3.10"'),
        ("ourorg/rocm-torch", "Our/Org", "INVALID_VALUE", 1, "ourorg/rocm-torch"),
        ("ourorg/rocm-torch", "ourorg/rocm-torch:1", "INVALID_VALUE", 1, "without a tag"),
        ("version: 1", "version: 2", "UNKNOWN_VALUE", 1, "1"),
    ],
)
def test_a_mistake_is_told_with_line_and_fix(
    old: str, new: str, code: str, line: int, fix: str
) -> None:
    found = [item for item in problems(GOOD.replace(old, new)) if item.code == code]
    assert [item.where for item in found] == [f"matrix.yaml:{line}"]
    assert fix in str(found[0].fix)


def test_an_unquoted_version_says_what_was_read() -> None:
    found = problems(GOOD.replace('"3.11"]', "3.10]"))
    assert "3.10" in found[0].what
    assert "3.1," in found[0].what


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "EMPTY_FILE"),
        ("# nothing\n", "EMPTY_FILE"),
        ("lanes: [", "YAML_SYNTAX"),
        ("a: 1\n\tb: 2\n", "YAML_SYNTAX"),
        ("a: \x00", "YAML_SYNTAX"),
        ("a: \ud800", "YAML_SYNTAX"),
        ("a: 1\n---\nb: 2\n", "YAML_SYNTAX"),
        (b"image: \xff\n", "NOT_UTF8"),
        ("[1, 2]", "WRONG_TYPE"),
        ("words", "WRONG_TYPE"),
        ("[" * 100 + "]" * 100, "TOO_LARGE"),
        ("a: &a [*a]", "TOO_LARGE"),
        ("x" * 4_000_001, "TOO_LARGE"),
    ],
)
def test_what_is_no_matrix_is_refused_with_one_problem(text: str | bytes, code: str) -> None:
    problem = only(text)
    assert problem.code == code
    assert str(problem.where).startswith("matrix.yaml:")


def test_an_alias_bomb_is_refused() -> None:
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert only("\n".join(layers)).code == "TOO_LARGE"


def test_a_product_beyond_all_use_is_refused_before_it_is_made() -> None:
    versions = ", ".join(f'"1.{n}.{m}"' for n in range(20) for m in range(40))
    pythons = ", ".join(f'"3.{n}"' for n in range(90))
    text = GOOD.replace('"2.6.0", "1.13.1"', versions).replace('"3.13", "3.11"', pythons)
    assert only(text).code == "TOO_MANY_COMBINATIONS"


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path, code in ((tmp_path / "absent.yaml", "NO_MATRIX"), (tmp_path, "UNREADABLE_MATRIX")):
        with pytest.raises(RefusedError, match=code):
            read_matrix(path, "matrix.yaml", load_facts())


def test_all_problems_are_reported_at_once_in_the_order_of_lines() -> None:
    text = (
        GOOD.replace("purpose:", "purpos: typo\n    purpose:")
        .replace('"debian12"]', '"debian14"]')
        .replace('"1.13.1"]', "1.10]")
        + '  again:\n    purpose: twice\n    base: distro\n    distro: ["debian13"]\n'
        + '    torch: ["2.6"]\n    python: ["3.13"]\n'
        + '    exclude:\n      - {pyhton: "3.13", reason: typo}\n'
        + "      - {distro: debian12, reason: leftover}\n"
    )
    found = problems(text)
    assert {item.code for item in found} >= {
        "UNKNOWN_KEY",
        "UNKNOWN_AXIS_VALUE",
        "UNQUOTED_VERSION",
        "DUPLICATE_CELL",
        "EXCLUDE_MATCHES_NOTHING",
    }
    lines = [int(str(item.where).rpartition(":")[2]) for item in found]
    assert lines == sorted(lines)


def test_an_item_after_a_bad_one_keeps_its_line() -> None:
    text = GOOD.replace(
        '["debian13", "debian12"]', '\n      - "debian13"\n      - [no]\n      - "debian99"'
    )
    found = {item.code: item.where for item in problems(text)}
    assert found["UNKNOWN_AXIS_VALUE"] == "matrix.yaml:10"


def test_a_cell_in_two_lanes_is_told_with_both_lines() -> None:
    text = GOOD + GOOD.partition("lanes:\n")[2].replace("cpu:", "more:").replace('"debian13", ', "")
    problem = only(text)
    assert problem.code == "DUPLICATE_CELL"
    assert "matrix.yaml:4" in problem.what
    assert "matrix.yaml:10" in problem.what
    assert "cpu-torch1.13.1-py311-debian12" in problem.what


def test_excludes_drop_what_they_name_and_give_their_reason() -> None:
    text = GOOD + "    exclude:\n      - {distro: [debian12], torch: '1.13', reason: too old}\n"
    matrix = load_matrix(text, "matrix.yaml", load_facts())
    assert [cell.distro for cell in matrix.cells] == ["debian13"]
    mine = [item for item in matrix.excluded if item.code == "EXCLUDED_BY_MATRIX"]
    assert len(mine) == 2
    assert {item.reason for item in mine} == {"too old"}


def test_an_exclude_without_axes_is_refused() -> None:
    assert only(GOOD + "    exclude:\n      - {reason: all}\n").code == "EXCLUDE_NAMES_NO_AXIS"


def test_anchors_and_merge_keys_work_and_keep_their_lines() -> None:
    text = GOOD.replace("  cpu:\n", "  cpu: &lane\n") + (
        "    flavour: [runtime]\n  other:\n    <<: *lane\n    distro: [debian99]\n"
    )
    problem = only(text)
    assert (problem.code, problem.where) == ("UNKNOWN_AXIS_VALUE", "matrix.yaml:13")


def test_one_lane_of_a_kind_is_the_default() -> None:
    lane = GOOD.partition("lanes:\n")[2].replace("purpose:", "default: true\n    purpose:")
    text = GOOD.partition("  cpu:")[0] + lane + lane.replace("cpu:", "more:")
    assert "TWO_DEFAULT_LANES" in {item.code for item in problems(text)}


def test_a_policy_is_read_with_its_waiver() -> None:
    text = GOOD + (
        "    policy:\n      levels: [gpu, smoke]\n      size_budget: 1.5 GiB\n"
        "      waiver: {levels: [gpu], reason: no GPU yet, until: 2027-01-31}\n"
    )
    policy = load_matrix(text, "matrix.yaml", load_facts()).cells[0].policy
    assert policy.levels == ("smoke", "gpu")
    assert policy.size_budget_bytes == 3 * 2**29
    assert policy.waiver is not None
    assert policy.waiver.until.isoformat() == "2027-01-31"


def test_a_lane_is_signed_only_where_a_key_is_named() -> None:
    lane = GOOD + "    policy: {signed: true}\n"
    problem = only(lane)
    assert (problem.code, problem.where) == ("NO_PUBLIC_KEY", "matrix.yaml:10")
    assert "public_key: cosign.pub" in (problem.fix or "")
    text = lane + "signing: {public_key: cosign.pub}\n"
    matrix = load_matrix(text, "matrix.yaml", load_facts())
    assert all(cell.policy.signed for cell in matrix.cells)
    assert not any(cell.policy.signed for cell in load_matrix(GOOD, "m", load_facts()).cells)


def test_the_json_schema_names_every_key_of_a_lane_and_no_others() -> None:
    lane = matrix_json_schema()["$defs"]["LaneSource"]
    assert set(lane["properties"]) == set(LaneSource.model_fields)
    assert lane["additionalProperties"] is False
