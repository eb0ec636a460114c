"""A Dockerfile or a piece of one as instructions, and which of them need BuildKit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEREDOC = re.compile(r"<<-?(?P<quote>['\"]?)(?P<end>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)")
_IGNORE = re.compile(r"#\s*rocm-torch:\s*ignore=([A-Z0-9_,\s]+)")
_FLAGS = re.compile(r"^(?:--[a-z]+(?:=\S+)?\s+)+")
_BUILDKIT_FLAGS = re.compile(r"--(mount|network|security|link|chmod|parents|exclude|checksum)\b")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction with its continuation lines joined.

    Attributes:
        keyword: upper case; empty for a line that is no instruction.
        flags: ``--mount=...`` and the like.
        value: the rest; heredocs stand in it line by line.
        line: where it begins, from 1.
        ignored: codes that a comment before it takes out.
        heredoc: whether it has one.
    """

    keyword: str
    flags: str
    value: str
    line: int
    ignored: frozenset[str] = frozenset()
    heredoc: bool = False


def instructions(text: str) -> tuple[Instruction, ...]:
    """Read a Dockerfile; ``# rocm-torch: ignore=CODE`` before an instruction takes codes out."""
    return tuple(_read(text.splitlines()))


def buildkit_features(text: str) -> tuple[tuple[int, str], ...]:
    """Return line and name of what only BuildKit understands; the classic builder fails there."""
    found = []
    for one in instructions(text):
        found += [(one.line, f"{one.keyword} --{flag}") for flag in _buildkit_flags(one)]
        if one.heredoc:
            found.append((one.line, f"{one.keyword} <<"))
    return tuple(found)


def _buildkit_flags(one: Instruction) -> list[str]:
    return sorted(set(_BUILDKIT_FLAGS.findall(one.flags)))


def _read(lines: list[str]) -> Iterator[Instruction]:
    ignored: set[str] = set()
    place = 0
    while place < len(lines):
        stripped = lines[place].strip()
        if not stripped or stripped.startswith("#"):
            found = _IGNORE.match(stripped)
            if found:
                ignored |= {code.strip() for code in found[1].split(",") if code.strip()}
            place += 1
            continue
        first = place
        whole, place = _joined(lines, place)
        body, place = _heredocs(whole, lines, place)
        yield _instruction(whole, body, first + 1, frozenset(ignored))
        ignored = set()


def _joined(lines: list[str], place: int) -> tuple[str, int]:
    """Join continuation lines; comments and empty lines between them do not end them."""
    parts: list[str] = []
    while place < len(lines):
        line = lines[place].rstrip()
        place += 1
        if parts and (not line.strip() or line.lstrip().startswith("#")):
            continue
        if not line.endswith("\\"):
            parts.append(line)
            break
        parts.append(line[:-1])
    return " ".join(part.strip() for part in parts), place


def _heredocs(whole: str, lines: list[str], place: int) -> tuple[list[str], int]:
    body: list[str] = []
    if not re.match(r"(?i)(run|copy|add)\b", whole):
        return body, place
    for found in _HEREDOC.finditer(whole):
        while place < len(lines) and lines[place].strip() != found["end"]:
            body.append(lines[place])
            place += 1
        place += 1
    return body, place


def _instruction(whole: str, body: list[str], line: int, ignored: frozenset[str]) -> Instruction:
    keyword, _, rest = whole.strip().partition(" ")
    rest = rest.strip()
    found = _FLAGS.match(f"{rest} ")
    flags = found.group() if found else ""
    value = rest[len(flags) :] if flags else rest
    if body:
        value = "\n".join([_HEREDOC.sub("", value), *body])
    return Instruction(keyword.upper(), flags.strip(), value, line, ignored, bool(body))
