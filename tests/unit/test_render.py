from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from dockerfiles import instructions, pairs
from hypothesis import given
from hypothesis import strategies as st
from samples import CELL, OURS, ROOT, cell

from builder.errors import RefusedError
from builder.facts import load_facts
from builder.matrix.cells import Base, Cell, Expected, Policy, Waiver
from builder.matrix.load import read_matrix
from builder.render import quote
from builder.render.context import Renderer, description, labels

FOLDER = ROOT / "templates"
TEMPLATES = {path.relative_to(FOLDER).as_posix(): path.read_text() for path in FOLDER.rglob("*.j2")}
RENDERER = Renderer(TEMPLATES)
IMAGE = "ourorg/rocm-torch"
NASTY = (
    '"',
    "'",
    "\\",
    "$(id)",
    "`id`",
    "${HOME}",
    "$HOME",
    "{{ cell.id }}",
    "{% raw %}",
    "{#",
    "<<EOF",
    "\n",
    "\r",
    "\u2028",
    "\ud800",
    "\x00",
    "\t",
    " # syntax=x",
    "\\\n",
    ";",
    "&&",
    "a=b",
    "é",
    "\xa0",
)
PRINTABLE = tuple(text for text in NASTY if text.isprintable())
# What may stand in a file, however it looks: none of it has to be refused.
ODD = st.lists(
    st.one_of(st.sampled_from(PRINTABLE), st.text(st.characters(codec="ascii", categories=["P"]))),
    max_size=6,
).map("".join)
HOSTILE = st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=4)), max_size=6).map("".join)


def test_the_committed_contexts_are_what_matrix_and_templates_say() -> None:
    matrix = read_matrix(ROOT / "matrix.yaml", "matrix.yaml", load_facts())
    assert {one.id for one in matrix.cells} >= set(OURS)
    for one in matrix.cells:
        folder = ROOT / "images" / one.id
        there = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert RENDERER.render(one, image=matrix.image) == there


@given(ODD, ODD, ODD, ODD, ODD, ODD)
def test_odd_values_arrive_unchanged(
    name: str, lane: str, distro: str, python: str, torch: str, image: str
) -> None:
    hostile = cell(id=name, lane=lane, distro=distro, python=python, torch=torch, gfx=(lane,))
    text = RENDERER.render(hostile, image=image)["Dockerfile"].decode()
    line = next(line for line in instructions(text) if line.startswith("LABEL"))
    assert pairs(line) == labels(hostile, image=image)


@given(ODD, HOSTILE, ODD, HOSTILE, ODD, ODD)
def test_hostile_values_are_refused_or_arrive_unchanged(
    name: str, lane: str, distro: str, python: str, torch: str, image: str
) -> None:
    hostile = cell(id=name, lane=lane, distro=distro, python=python, torch=torch, gfx=(lane,))
    try:
        context = RENDERER.render(hostile, image=image)
    except RefusedError:
        return
    lines = instructions(context["Dockerfile"].decode())
    starts = [line.split()[0] for line in lines]
    plain = RENDERER.render(cell(gfx=("gfx90a",)), image=IMAGE)["Dockerfile"].decode()
    assert starts == [line.split()[0] for line in instructions(plain)]
    assert pairs(lines[starts.index("LABEL")]) == labels(hostile, image=image)
    assert json.loads(context["cell.json"])["id"] == name


@given(st.lists(HOSTILE, max_size=3))
def test_hostile_packages_are_refused_or_are_single_words_of_the_shell(
    packages: list[str],
) -> None:
    packages = ["python3-torch", *packages]
    try:
        context = RENDERER.render(cell(packages=tuple(packages)), image=IMAGE)
    except RefusedError:
        return
    lines = instructions(context["Dockerfile"].decode())
    run = next(line for line in lines if "apt-get install" in line)
    lexer = shlex.shlex(run, posix=True, punctuation_chars=";")
    lexer.whitespace_split, lexer.commenters = True, ""
    words = list(lexer)
    at = words.index("--no-install-recommends") + 1
    assert sorted(words[at : at + len(packages)]) == sorted(packages)
    assert words[at + len(packages)] == ";"


@given(HOSTILE)
def test_a_base_is_a_reference_or_refused(ref: str) -> None:
    try:
        context = RENDERER.render(cell(base=Base("distro", ref)), image=IMAGE)
    except RefusedError:
        return
    assert instructions(context["Dockerfile"].decode())[0] == f"FROM {ref}"
    assert not set(ref) & set(" $\"'\\\n")


@given(HOSTILE)
def test_a_word_of_the_shell_is_one_word(value: str) -> None:
    try:
        word = quote.shell_word(value)
    except ValueError:
        return
    assert shlex.split(word) == [value]
    assert "\n" not in word


@given(st.text())
def test_a_comment_stays_in_its_line(value: str) -> None:
    found = quote.comment(value)
    assert len(found) == len(value)
    assert found.isascii()
    assert found.isprintable()


@given(HOSTILE)
def test_json_is_one_line_and_reads_back(value: str) -> None:
    text = quote.json_text({"a": value})
    assert "\n" not in text
    assert json.loads(text) == {"a": value}


@pytest.mark.parametrize("name", ["", "a b", "a=b", 'a"', "1a", "a\n", "-a", "a$b"])
def test_what_cannot_name_a_label_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        quote.docker_key(name)


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x00", "\u2029", "\x7f", "\ud800"])
def test_line_breaks_and_controls_can_stand_nowhere(value: str) -> None:
    for write in (quote.shell_word, quote.docker_word):
        with pytest.raises(ValueError, match="cannot stand here"):
            write(value)


def test_a_family_without_template_is_refused_by_name() -> None:
    with pytest.raises(RefusedError) as caught:
        RENDERER.render(cell(base=Base("wheel-of-fortune", "debian:13")), image=IMAGE)
    problem = caught.value.problems[0]
    assert problem.code == "TEMPLATE_MISSING"
    assert "templates/wheel-of-fortune.Dockerfile.j2" in (problem.fix or "")


@pytest.mark.parametrize("text", ["{{ cell.nothing }}", "{{ nothing }}", "{% if %}"])
def test_a_template_that_cannot_be_rendered_is_told_with_its_name(text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        Renderer({"distro.Dockerfile.j2": text}).render(CELL, image=IMAGE)
    problem = caught.value.problems[0]
    assert problem.code == "TEMPLATE_FAILED"
    assert (problem.where or "").startswith("templates/distro.Dockerfile.j2")


def test_nothing_of_the_policy_is_in_the_context() -> None:
    strict = Policy(("smoke", "gpu"), 5, Waiver(("gpu",), "no machine", date(2026, 1, 1)))
    assert RENDERER.render(cell(policy=strict), image=IMAGE) == RENDERER.render(CELL, image=IMAGE)


def test_a_rocm_cell_says_so_in_labels_and_description() -> None:
    found = labels(cell(rocm="6.2.4", gfx=("gfx90a", "gfx942")), image=IMAGE)
    assert "for ROCm 6.2.4 " in found["org.opencontainers.image.description"]
    assert found["io.rocm-torch.rocm"] == "6.2.4"
    assert found["io.rocm-torch.gfx"] == "gfx90a,gfx942"
    assert "io.rocm-torch.rocm" not in labels(CELL, image=IMAGE)


def test_the_image_knows_what_it_is_expected_to_report() -> None:
    one = replace(CELL, expected=Expected("2.6.0", "hip", "6.2.41", ("gcc",), ("x is bad",)))
    assert description(one)["expected"] == {
        "torch_version": "2.6.0",
        "backend": "hip",
        "hip_version": "6.2.41",
        "contents": ["gcc"],
        "pip_check_known": ["x is bad"],
    }


@pytest.mark.parametrize("path", sorted(TEMPLATES))
def test_no_template_asks_for_a_syntax_image(path: str) -> None:
    assert "syntax=" not in TEMPLATES[path]
    assert Path(path).suffix == ".j2"


def test_rendering_is_a_function_of_the_cell() -> None:
    first: Cell = cell(packages=("b", "a"))
    assert RENDERER.render(first, image=IMAGE) == Renderer(TEMPLATES).render(
        cell(packages=("a", "b")), image=IMAGE
    )
