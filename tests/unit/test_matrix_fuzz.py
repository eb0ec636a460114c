"""Hostile documents end in a valid matrix or in a refusal, and never in another exception."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from builder.errors import RefusedError
from builder.facts import load_facts
from builder.matrix.load import Matrix, load_matrix
from builder.matrix.schema import ExcludeSource, LaneSource, MatrixSource, PolicySource

GOOD = """\
version: 1
image: ourorg/rocm-torch
lanes:
  cpu: &lane
    purpose: a test
    base: distro
    distro: ["debian13", "debian12"]
    torch: ["2.6.0", "1.13.1"]
    python: ["3.13", "3.11"]
    prefer: {distro: [debian13]}
    exclude:
      - {python: "3.11", distro: debian13, reason: none}
    policy: {levels: [smoke], waiver: {levels: [gpu], reason: none, until: 2027-01-31}}
"""
TOKENS = (
    "*lane", "&lane ", "<<: *lane", "<<: [*lane, 1]", "<<", "=", "!!python/object:os.system ",
    "!!int x", "!!timestamp x", "!!float ''", "!!bool x", "!!set {a}", "!!binary x", "!x y",
    "2026-99-99", "1:2:3", "0o17", "0x" + "f" * 5000, "9" * 5000, ".inf", "1e999", "~", "- ", "? ",
    "? [a]\n: b", "|\n", ">", "%YAML 9.9\n", "---", "...", "\t", "\x00", "\ud800", "\ufeff", "\r",
    "{{ }}", "$(x)", "'", '"', "{", "}", "[", "]", ":", "#", ",", "[" * 5000, "{a: " * 40,
    "default: true", "base: auto", "rocm: ['6.2']", "flavour: [slim-gfx942]", "x" * 300,
)  # fmt: skip
WORDS = sorted(
    {
        *MatrixSource.model_fields,
        *LaneSource.model_fields,
        *PolicySource.model_fields,
        *ExcludeSource.model_fields,
        "cpu",
    }
)
VALUES = ["distro", "debian13", "2.6.0", "2.6", "3.13", "3.13t", "runtime", "4 GiB", "smoke", ""]
# Values that facts know, so that rules and families are reached and not only the shape.
KNOWN = {
    "distro": ["debian13", "debian12", "ubuntu20.04", "ubuntu24.04", "almalinux8", "ubi10"],
    "rocm": ["6.2", "6.4.0", "7.2", "7.14", "10.1", "10.1.0", "9.9"],
    "torch": ["2.14.0", "2.9.1", "2.7", "2.6.0", "1.13.1"],
    "python": ["3.9", "3.10", "3.12", "3.13t", "3.14"],
    "flavour": ["runtime", "devel", "opencl", "slim-gfx942", "slim-gfx803"],
    "gfx": ["gfx906", "gfx942", "gfx1100", "gfx1151"],
}
BASES = ["auto", "rocm-pytorch", "wheel", "amd-wheel", "rocm-dev", "distro"]
PINS = ["numpy==2.3.4", "numpy==1.26", "torchvision==0.1", "triton==3.0", "x==1", "x>=1", "x @ y"]
scalars = (
    st.sampled_from(VALUES)
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.datetimes()
    | st.text(max_size=8)
)
keys = st.sampled_from(WORDS) | st.text(max_size=4) | st.integers(0, 3)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=20,
)
lanes = st.fixed_dictionaries(
    {
        "purpose": st.just("a test"),
        "base": st.sampled_from(["distro", "auto", "wheel"]),
        **{
            axis: st.lists(st.sampled_from(VALUES) | scalars, max_size=3)
            for axis in ("distro", "torch", "python")
        },
    },
    optional={
        name: trees
        for name in WORDS
        if name not in {"purpose", "base", "distro", "torch", "python"}
    },
)
some = {
    axis: st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)
    for axis, values in KNOWN.items()
}
axes = st.fixed_dictionaries({}, optional=some)
known_lanes = st.fixed_dictionaries(
    {
        "purpose": st.just("a test"),
        "base": st.sampled_from(BASES),
        "distro": some["distro"],
        "torch": some["torch"],
        "python": some["python"],
    },
    optional={
        "rocm": some["rocm"],
        "flavour": some["flavour"],
        "gfx": some["gfx"],
        "default": st.booleans(),
        "include": st.lists(axes, max_size=2),
        "exclude": st.lists(axes.map(lambda one: {**one, "reason": "a test"}), max_size=2),
        "python_packages": st.lists(st.sampled_from(PINS), max_size=2),
        "prefer": st.fixed_dictionaries(
            {}, optional={"distro": some["distro"], "python": some["python"]}
        ),
    },
)
known_documents = st.fixed_dictionaries(
    {
        "version": st.just(1),
        "image": st.just("a/b"),
        "lanes": st.dictionaries(st.sampled_from(["one", "two"]), known_lanes, min_size=1),
    }
)
documents = st.fixed_dictionaries(
    {"version": st.just(1), "image": st.just("a/b"), "lanes": st.dictionaries(keys, lanes)},
    optional={name: trees for name in WORDS if name not in {"version", "image", "lanes"}},
)


def judge(text: str | bytes) -> None:
    try:
        result: Matrix | RefusedError = load_matrix(text, "matrix.yaml", load_facts())
    except RefusedError as error:
        result = error
    if isinstance(result, RefusedError):
        assert result.problems
        assert all(str(item.where).startswith("matrix.yaml:") for item in result.problems)


@given(
    st.lists(st.tuples(st.integers(0, len(GOOD)), st.integers(0, 12), st.sampled_from(TOKENS))),
)
def test_a_matrix_with_hostile_pieces_put_in(edits: list[tuple[int, int, str]]) -> None:
    text = GOOD
    for at, cut, token in edits:
        text = text[:at] + token + text[at + cut :]
    judge(text)


@given(trees | documents)
def test_data_of_any_shape(data: Any) -> None:
    judge(yaml.safe_dump(data, allow_unicode=True))


@given(known_documents)
def test_lanes_of_values_that_there_are(data: Any) -> None:
    judge(yaml.safe_dump(data))


@given(st.text() | st.binary())
@example("lanes: {cpu: {exclude: [[], 1, {}]}}")
@example("a: &a {b: *a}")
@example("<<: &a {<<: *a}")
def test_any_text(text: str | bytes) -> None:
    judge(text)
