"""A whole file: what kind it is, and every rule over it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from shlex import join
from typing import TYPE_CHECKING

from builder.errors import Problem
from builder.plan.lint.dockerfile import buildkit_features, instructions
from builder.plan.lint.model import Finding
from builder.plan.lint.rules import check_env, check_from, check_run
from builder.plan.lint.shell import requirement_name
from builder.plan.lint.torch import TORCH, check_requirement, extra_index_of_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.plan.lint.dockerfile import Instruction
    from builder.plan.lint.model import Builder

_KEYWORDS = re.compile(r"(?im)^\s*(FROM|RUN|ENV|COPY|ADD|ARG|SHELL|USER|WORKDIR)\s+\S")


def lint(name: str, text: str, *, builder: Builder = "buildkit") -> tuple[Finding, ...]:
    """Read a Dockerfile, a piece of one or a requirements file, and return what is wrong with it.

    Args:
        name: of the file, for the message; ``requirements*.txt`` is read as requirements.
        text: what is in it.
        builder: what will read the Dockerfile.

    Returns:
        Findings in the order of the lines.
    """
    if not is_dockerfile(name, text):
        return tuple(_requirements(name, text))
    return tuple(_dockerfile(name, text, builder))


def is_dockerfile(name: str, text: str) -> bool:
    """Tell a Dockerfile from requirements: by its name, else by its instructions."""
    last = name.rpartition("/")[2].lower()
    if "dockerfile" in last or "containerfile" in last:
        return True
    return not last.endswith((".txt", ".in")) and bool(_KEYWORDS.search(text))


def _dockerfile(name: str, text: str, builder: Builder) -> Iterator[Finding]:
    features = buildkit_features(text) if builder == "classic" else ()
    for line, feature in features:
        yield Finding(
            Problem(
                code="NEEDS_BUILDKIT",
                what=f"the classic builder does not know `{feature}`",
                where=f"{name}:{line}",
                why="the API of the docker SDK builds with it, whatever the first line says",
                fix="build through `docker buildx build`",
            )
        )
    stages: set[str] = set()
    pipefail = False
    for one in instructions(text):
        where = f"{name}:{one.line}"
        found: Iterator[Finding] = iter(())
        if one.keyword == "FROM":
            found, pipefail = check_from(one, where, frozenset(stages)), False
            stages |= _stage(one)
        elif one.keyword == "SHELL":
            pipefail = "pipefail" in one.value
        elif one.keyword == "RUN":
            found = check_run(_plain(one), where, pipefail=pipefail)
        elif one.keyword in ("ENV", "ARG"):
            found = check_env(one, where)
        yield from (each for each in found if each.problem.code not in one.ignored)


def _stage(one: Instruction) -> set[str]:
    found = re.search(r"(?i)\sas\s+(\S+)", one.value)
    return {found[1].lower()} if found else set()


def _plain(one: Instruction) -> Instruction:
    """Write the exec form (a JSON list) as shell text, which the rules read."""
    if not one.value.startswith("["):
        return one
    try:
        words = json.loads(one.value)
    except ValueError:
        return one
    if words[:1] and len(words) == 3 and str(words[1]).endswith("c"):
        return replace(one, value=str(words[2]))
    return replace(one, value=join(map(str, words)))


def _requirements(name: str, text: str) -> Iterator[Finding]:
    lines = [
        (number, line.partition(" #")[0].strip())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    torch = any(requirement_name(line) in TORCH for _, line in lines if not line.startswith("-"))
    for number, line in lines:
        where = f"{name}:{number}"
        if line.startswith("--extra-index-url") and torch:
            yield extra_index_of_environment(where, line)
        elif not line.startswith("-"):
            yield from check_requirement(line, where)
