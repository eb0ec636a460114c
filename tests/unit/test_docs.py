"""What README, CONTRIBUTING and docs say is checked against the program and the working copy."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from builder.cli.main import app, run
from builder.report.table import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
GROUP = '--group-add "$(stat -c %g /dev/kfd)"'
DEVICES = ("--device=/dev/kfd", "--device=/dev/dri")
# Some releases of typer use the click that is installed, others bring their own: what a wrong call
# raises is asked of typer.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HTML_LINK = re.compile(r"""(?:src|srcset|href)=["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class Told:
    """A command as a page tells it; ``planned`` where its line of text says that of something."""

    page: str
    text: str
    planned: bool = False

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def _fences(page: Path, *languages: str) -> Iterator[str]:
    for language, body in _FENCE.findall(page.read_text("utf-8")):
        if language in languages:
            yield body


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


def _told() -> Iterator[Told]:
    """Yield each command line of the fences, continued lines joined, prompts taken away."""
    for page in PAGES:
        for body in _fences(page, "console", "sh"):
            for line in body.replace("\\\n", " ").splitlines():
                if text := line.strip().removeprefix("$ "):
                    yield Told(page.relative_to(ROOT).as_posix(), text)


def _mentioned(start: str) -> Iterator[Told]:
    """Yield commands that start so in fences, and those in running text that have arguments."""
    yield from (told for told in _told() if told.text.startswith(start))
    for page in PAGES:
        for line in _prose(page).splitlines():
            for text in _CODE.findall(line):
                if text.startswith(f"{start} "):
                    yield Told(page.relative_to(ROOT).as_posix(), text, "planned" in line.lower())


COMMANDS = tuple(dict.fromkeys(told for told in _mentioned("rocm-torch") if not told.planned))
RUNS = tuple(told for start in ("docker run", "podman run") for told in _mentioned(start))
TARGETS = tuple(dict.fromkeys(_mentioned("make")))


def _parse(words: list[str]) -> None:
    """Parse one call without running it; a usage error where the program would not take it."""
    command: Any = typer.main.get_command(app)
    name = words.pop(0)
    while hasattr(command, "commands"):
        words = _after_options(command, words)
        if not words:
            raise typer.BadParameter(f"{name} needs a command")
        name, *words = words
        if name not in command.commands:
            raise typer.BadParameter(f"there is no command {name!r}")
        command = command.commands[name]
    command.make_context(name, words)


def _after_options(group: Any, words: list[str]) -> list[str]:
    """Return what stands after the options of a group."""
    known = {
        name: parameter
        for parameter in group.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    rest = list(words)
    while rest and rest[0].startswith("-"):
        name, equals, _ = rest.pop(0).partition("=")
        if name not in known:
            raise typer.BadParameter(f"there is no option {name!r}")
        if not (known[name].is_flag or equals):
            rest.pop(0)
    return rest


@pytest.mark.parametrize("told", COMMANDS, ids=str)
def test_each_rocm_torch_command_parses(told: Told) -> None:
    for call in told.text.split(" && "):
        _parse(shlex.split(call, comments=True))


@pytest.mark.parametrize(
    "call",
    [
        "rocm-torch no-such-command",
        "rocm-torch plan --no-such-option",
        "rocm-torch --nope plan",
        "rocm-torch registry sideways",
    ],
)
def test_a_call_that_the_program_does_not_know_does_not_parse(call: str) -> None:
    with pytest.raises(USAGE_ERROR):
        _parse(shlex.split(call))


@pytest.mark.parametrize("told", TARGETS, ids=str)
def test_each_make_target_exists(told: Told) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    rules = re.findall(r"^([a-z][a-z0-9 -]*):(?!=)", makefile, re.MULTILINE)
    targets = {name for rule in rules for name in rule.split()}
    assert set(told.text.split()[1:]) <= targets


@pytest.mark.parametrize("told", RUNS, ids=str)
def test_each_run_line_passes_both_devices(told: Told) -> None:
    assert all(device in told.text for device in DEVICES)


@pytest.mark.parametrize("told", [told for told in RUNS if "docker run" in told.text], ids=str)
def test_each_docker_run_line_adds_the_group_that_owns_the_node(told: Told) -> None:
    assert GROUP in told.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_asks_for_a_privileged_container(page: Path) -> None:
    assert "--privileged" not in page.read_text("utf-8")


def test_the_checks_of_this_module_find_something_to_check() -> None:
    pages = {told.page for told in _told()}
    assert {"README.md", "CONTRIBUTING.md"} <= pages
    assert COMMANDS
    assert TARGETS
    assert any(told.text.startswith("docker run") for told in RUNS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_relative_link_and_image_resolves(page: Path) -> None:
    prose = _prose(page)
    links = [*_LINK.findall(prose), *_HTML_LINK.findall(prose)]
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    missing = [link for link in local if not _resolves(page, link)]
    assert not missing


def _resolves(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return False
    return not anchor or anchor in _anchors(target)


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, by the rule of the usual forges."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def _folder_map() -> Iterator[Path]:
    page = ROOT / "docs" / "architecture.md"
    rooms = page.read_text("utf-8").partition("## Rooms")[2]
    found = _FENCE.search(rooms)
    assert found
    parents: list[str] = []
    for line in found.group(2).splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        parents[depth:] = [line.split()[0]]
        yield ROOT.joinpath(*parents)


def test_each_place_of_the_folder_map_exists() -> None:
    places = list(_folder_map())
    assert len(places) > 20
    missing = [place.relative_to(ROOT).as_posix() for place in places if not place.exists()]
    assert not missing


def test_the_folder_map_names_every_room() -> None:
    rooms = {path.parent for path in (ROOT / "builder").glob("*/__init__.py")}
    assert rooms <= set(_folder_map())


def _columns(text: str) -> list[str]:
    header = next(line for line in text.splitlines() if line.startswith("┃"))
    return [cell.strip() for cell in header.strip("┃").split("┃")]


def test_the_sample_table_has_the_fields_of_the_real_one_in_their_order() -> None:
    sample = next(body for body in _fences(ROOT / "README.md", "text") if "packages" in body)
    names = [line.split()[0] for line in sample.splitlines() if line[:1].isalpha()]
    assert names == [*FIELDS, *FIELDS, "Run"]


def test_each_picture_names_itself_for_those_who_cannot_see_it() -> None:
    for picture in (ROOT / "docs").rglob("*.svg"):
        assert "<title" in picture.read_text("utf-8")


_PRINTED = re.compile(r"^```console\n\$ (rocm-torch run .*?)```\n\n```\w+\n(.*?)^```$", re.M | re.S)
_BATCH = re.compile(r"^\$ (rocm-torch run --print slurm .*)$", re.M)


def _run_page() -> str:
    return (ROOT / "docs" / "run.md").read_text("utf-8")


@pytest.mark.parametrize(("line", "printed"), _PRINTED.findall(_run_page()))
def test_the_page_about_run_shows_what_the_program_prints(
    line: str,
    printed: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert run(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out == printed


def test_the_batch_script_of_the_examples_is_what_its_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (line,) = _BATCH.findall(_run_page())
    assert run(shlex.split(line)[1:]) == 0
    script = ROOT / "docs" / "examples" / "torchrun_two_nodes.sbatch"
    assert capsys.readouterr().out == script.read_text("utf-8")


def test_the_page_about_run_has_a_line_for_each_guide() -> None:
    assert len(_PRINTED.findall(_run_page())) >= 6
