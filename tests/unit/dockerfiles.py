"""Reading rendered Dockerfiles: instructions, quoted pairs, and what the shell makes of a RUN."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

HADOLINT = Path(sys.executable).parent / "hadolint"
CONFIG = Path(__file__).parents[2] / ".hadolint.yaml"


def instructions(text: str) -> list[str]:
    """Return the logical lines of a Dockerfile: comments out, continuations joined."""
    kept = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    logical, pending = [], ""
    for line in kept:
        if line.endswith("\\"):
            pending += line[:-1]
        elif pending or line:
            logical.append(pending + line)
            pending = ""
    assert not pending
    return logical


def pairs(line: str) -> dict[str, str]:
    """Read ``KEY="value" ...`` as the builder does: in quotes only ``\\ " $`` are special."""
    found: dict[str, str] = {}
    rest = line.partition(" ")[2].lstrip()
    while rest:
        key, _, rest = rest.partition('="')
        value = ""
        while rest[0] != '"':
            assert rest[0] != "$", "the builder would put a variable here"
            if rest[0] == "\\":
                assert rest[1] in '\\"$'
                rest = rest[1:]
            value, rest = value + rest[0], rest[1:]
        found[key] = value
        rest = rest[1:].lstrip(" ")
    return found


def commands(text: str) -> list[str]:
    """Return what each RUN gives to the shell, without the options that are the builder's."""
    found = []
    for line in instructions(text):
        word, _, rest = line.partition(" ")
        if word != "RUN":
            continue
        rest = rest.lstrip()
        while rest.startswith("--mount="):
            rest = rest.partition(" ")[2].lstrip()
        found.append(rest)
    return found


def shell_accepts(command: str) -> bool:
    """Return whether sh can parse ``command``; it is not run."""
    ran = subprocess.run(["sh", "-n"], input=command, text=True, check=False, capture_output=True)
    return ran.returncode == 0


def findings(texts: Mapping[str, str], folder: Path) -> list[dict[str, Any]]:
    """Return what hadolint, a parser of its own, says of Dockerfiles by name."""
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    ran = subprocess.run(
        [HADOLINT, "--config", CONFIG, "--format", "json", *sorted(texts)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=120,
    )
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found
