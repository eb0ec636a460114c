"""The templates of all base families: byte by byte, to parsers, and under hostile values."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from dockerfiles import commands, findings, instructions, pairs, shell_accepts
from family_cells import ALL, APT, DNF, FLAVOURS, family_cell
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import ROOT

from builder.errors import RefusedError
from builder.matrix.cells import Base, Cell, Interpreter
from builder.render.context import Renderer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOLDER = ROOT / "templates"
GOLDEN = ROOT / "tests/unit/golden"
RENDERER = Renderer(
    {path.relative_to(FOLDER).as_posix(): path.read_text() for path in FOLDER.rglob("*.j2")}
)
IMAGE = "ourorg/rocm-torch"
WHEEL_FAMILIES = ("wheel", "amd-wheel", "rocm-dev")


def dockerfile(cell: Cell) -> str:
    return RENDERER.render(cell, image=IMAGE)["Dockerfile"].decode()


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_dockerfile_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    path = GOLDEN / f"{name}.Dockerfile"
    text = dockerfile(ALL[name])
    if pytestconfig.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.read_bytes() == text.encode(), "see the diff of pytest --update-golden"


def test_each_golden_file_belongs_to_a_cell() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.Dockerfile" for name in ALL}


def test_hadolint_has_no_objection(tmp_path: Path) -> None:
    texts = {f"{name}.Dockerfile": dockerfile(cell) for name, cell in ALL.items()}
    assert findings(texts, tmp_path) == []


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_shell_accepts_each_run_and_each_stops_at_the_first_error(name: str) -> None:
    runs = commands(dockerfile(ALL[name]))
    assert runs
    for command in runs:
        assert shell_accepts(command), command
        assert command.lstrip().startswith(("set -eu;", "/mnt/usr/lib/rocm-torch/fetch-key"))
        assert "|" not in command.replace("||", ""), "a pipe hides who failed"


@pytest.mark.parametrize("name", sorted(ALL))
def test_each_stage_has_the_epoch_and_the_image_an_ordinary_user(name: str) -> None:
    lines = instructions(dockerfile(ALL[name]))
    for number, line in enumerate(lines):
        if line.startswith("FROM"):
            assert lines[number + 1] == "ARG SOURCE_DATE_EPOCH"
    assert [line for line in lines if line.startswith("USER")][-1] == "USER 1000"


@pytest.mark.parametrize("name", sorted(ALL))
def test_nothing_is_used_that_distributions_gave_up_or_that_needs_the_network_to_parse(
    name: str,
) -> None:
    text = dockerfile(ALL[name])
    forbidden = "apt-key|--allow-unauthenticated|--break-system-packages|extra-index-url|syntax="
    assert not re.search(forbidden, text)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("family", WHEEL_FAMILIES)
def test_torch_comes_from_the_locked_files_by_hash_and_from_no_index(
    family: str, flavour: str
) -> None:
    (sync,) = [c for c in commands(dockerfile(family_cell(family, flavour))) if "pip sync" in c]
    words = shlex.split(sync)
    assert {"--require-hashes", "--no-index", "UV_OFFLINE=1", "UV_PYTHON_DOWNLOADS=never"} < {
        word.rstrip(";") for word in words
    }


@pytest.mark.parametrize("manager", ["dnf", "microdnf"])
def test_no_network_is_asked_for_a_python_that_the_distribution_has(manager: str) -> None:
    text = dockerfile(family_cell("wheel", "runtime", manager))
    assert "python install" not in text
    assert "UV_PYTHON_PREFERENCE=only-system" in text
    assert "uv venv --python python3.11 /opt/venv" in text


def test_a_python_of_uv_can_be_read_by_all_and_leaves_no_setting_behind() -> None:
    text = dockerfile(family_cell("wheel"))
    assert "UV_PYTHON_INSTALL_DIR=/opt/python" in text
    assert "chmod -R a+rX /opt/python" in text
    assert not [line for line in instructions(text) if line.startswith(("ENV UV_", "ARG UV_"))]


@pytest.mark.parametrize(("manager", "repository"), [("apt", APT), ("dnf", DNF)])
def test_a_key_is_compared_before_anything_is_installed_from_its_repository(
    manager: str, repository: Any
) -> None:
    text = dockerfile(family_cell("wheel", "devel", manager))
    lines = instructions(text)
    fetched = next(n for n, line in enumerate(lines) if "fetch-key" in line)
    assert repository.key_fingerprint in lines[fetched]
    used = next(n for n, line in enumerate(lines) if "rocprofiler" in line)
    last_stage = max(n for n, line in enumerate(lines) if line.startswith("FROM"))
    assert fetched < last_stage < used
    assert "curl" not in "\n".join(lines[last_stage:])


def test_amds_repository_is_pinned_above_the_distributions() -> None:
    text = dockerfile(family_cell("wheel", "devel"))
    for line in ("'Package: *'", "'Pin: release o=repo.radeon.com'", "'Pin-Priority: 600'"):
        assert line in text


def test_a_repository_without_origin_is_pinned_by_its_host() -> None:
    one = family_cell("wheel", "devel")
    bare = replace(one, repositories=(replace(APT, origin=None, packages=("hipcc",)),))
    assert "'Pin: origin \"repo.radeon.com\"'" in dockerfile(bare)


def test_rpm_packages_are_verified_with_the_key_that_was_compared() -> None:
    text = dockerfile(family_cell("wheel", "devel", "microdnf"))
    assert "'gpgcheck=1'" in text
    assert "'gpgkey=file:///etc/pki/rpm-gpg/amd-rocm.asc'" in text


def test_the_image_says_which_targets_sources_are_compiled_for() -> None:
    lines = instructions(dockerfile(family_cell("rocm-dev", "devel")))
    (line,) = [line for line in lines if line.startswith("ENV PYTORCH_ROCM_ARCH")]
    assert set(pairs(line)) == {
        "PYTORCH_ROCM_ARCH",
        "GPU_ARCHS",
        "GPU_TARGETS",
        "HIP_ARCHITECTURES",
    }
    assert set(pairs(line).values()) == {"gfx90a;gfx942"}


@pytest.mark.parametrize(
    "name",
    ["amdgpu-dkms", "rocm-dkms", "linux-headers-6.8.0-40-generic", "kernel-devel", "kmod-amdgpu"],
)
@pytest.mark.parametrize("added", [True, False])
def test_no_image_gets_the_kernel_driver(name: str, added: bool) -> None:
    one = family_cell("wheel", "devel")
    if added:
        one = replace(one, repositories=(replace(one.repositories[0], packages=(name,)),))
    else:
        one = replace(one, packages=(name,))
    with pytest.raises(RefusedError) as caught:
        dockerfile(one)
    assert "belongs to the host" in caught.value.problems[0].what


@pytest.mark.parametrize(
    "name", ["libkernel-stuff", "g++", "libstdc++-14-dev", "rocm-opencl-icd", "python3.11-devel"]
)
def test_other_packages_are_no_driver(name: str) -> None:
    assert name in dockerfile(replace(family_cell("wheel"), packages=(name,)))


# Hostile values

NASTY = (
    '"', "'", "\\", "$(id)", "`id`", "${HOME}", "$HOME", "{{ cell.id }}", "{% raw %}", "{#",
    "<<EOF", "\n", "\r", "\u2028", "\ud800", "\x00", "\t", " # syntax=x", "\\\n", ";", "&&", "|",
    ">", "*", "a=b", "é", "\xa0", "-o", "--allow-unauthenticated", "gfx90a", "x86", "3.11",
)  # fmt: skip
# Never empty: a label without a value is left out.
HOSTILE = (
    st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=3)), min_size=1, max_size=5)
    .map("".join)
    .filter(bool)
)
# Values that may well be accepted, so that the other half of the sentence is tried too.
PLAUSIBLE = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 '\"$;./_+:~=@-]{0,12}", fullmatch=True)


def _repository(**changes: Any) -> Callable[[Cell], Cell]:
    return lambda cell: replace(
        cell, repositories=(replace(cell.repositories[0], **changes), *cell.repositories[1:])
    )


# What each free-text value is replaced by: first by a word of this table, then by a hostile one.
FIELDS: dict[str, tuple[str, Callable[[str], Callable[[Cell], Cell]]]] = {
    "id": ("zid", lambda v: lambda cell: replace(cell, id=v)),
    "lane": ("zlane", lambda v: lambda cell: replace(cell, lane=v)),
    "torch": ("ztorch", lambda v: lambda cell: replace(cell, torch=v)),
    "rocm": ("zrocm", lambda v: lambda cell: replace(cell, rocm=v)),
    "python": ("9.99", lambda v: lambda cell: replace(cell, python=v)),
    "gfx": ("gfxz", lambda v: lambda cell: replace(cell, gfx=(v,))),
    "base": ("zbase:1", lambda v: lambda cell: replace(cell, base=Base(cell.base.family, v))),
    "package": ("zpackage", lambda v: lambda cell: replace(cell, packages=("zca", v))),
    "interpreter": (
        "zpython",
        lambda v: lambda cell: replace(cell, interpreter=Interpreter("distro", v)),
    ),
    "name": ("zname", lambda v: _repository(name=v)),
    "uri": ("https://z.example/uri", lambda v: _repository(uri=v)),
    "key_url": ("https://z.example/key", lambda v: _repository(key_url=v)),
    "fingerprint": ("0123456789" * 4, lambda v: _repository(key_fingerprint=v)),
    "suite": ("zsuite", lambda v: _repository(suites=(v,))),
    "component": ("zcomponent", lambda v: _repository(components=(v,))),
    "origin": ("zorigin", lambda v: _repository(origin=v)),
    "added": ("zadded", lambda v: _repository(packages=("zca", v))),
}
FULL = {name: cell for name, cell in ALL.items() if cell.repositories}


def told(text: str) -> list[list[str] | dict[str, str]]:
    """Return what a Dockerfile says: words of commands, in no order, and pairs of ENV and LABEL."""
    found: list[list[str] | dict[str, str]] = []
    for line in instructions(text):
        word = line.split()[0]
        if word == "LABEL" or line.startswith("ENV PYTORCH_ROCM_ARCH"):
            found.append(pairs(line))
        elif word == "RUN":
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";")
            lexer.whitespace_split, lexer.commenters = True, ""
            found.append(sorted(lexer))
        else:
            found.append([line])
    return found


def put(said: list[list[str] | dict[str, str]], word: str, value: str) -> Any:
    """Return what was said with ``value`` wherever ``word`` was."""
    return [
        {key: text.replace(word, value) for key, text in part.items()}
        if isinstance(part, dict)
        else sorted(text.replace(word, value) for text in part)
        for part in said
    ]


@example("wheel-devel-apt", "lane", 'it\'s "$HOME" `id` $(id) {{ lane }} {% raw %} \\ # x; y')
@example("wheel-devel-apt", "gfx", 'gfx90a:sramecc+"; $(id)')
@example("wheel-devel-dnf", "package", "/usr/bin/g++")
@given(st.sampled_from(sorted(FULL)), st.sampled_from(sorted(FIELDS)), HOSTILE | PLAUSIBLE)
def test_a_hostile_value_is_refused_or_is_that_value_to_shell_and_builder(
    name: str, field: str, value: str
) -> None:
    word, change = FIELDS[field]
    plain = dockerfile(change(word)(FULL[name]))
    try:
        text = dockerfile(change(value)(FULL[name]))
    except RefusedError:
        return
    said = put(told(plain), word, value)
    assert told(text) == said
    assert all(shell_accepts(command) for command in commands(text))


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from(sorted(FIELDS)), PLAUSIBLE), max_size=4))
def test_what_is_rendered_is_parsed_by_hadolint(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str]]
) -> None:
    one = FULL["amd-wheel-devel-apt"]
    for field, value in changes:
        one = FIELDS[field][1](value)(one)
    try:
        text = dockerfile(one)
    except RefusedError:
        return
    folder = tmp_path_factory.mktemp("hadolint")
    found = findings({"Dockerfile": text}, folder)
    assert [item for item in found if item["code"] == "DL1000"] == []
