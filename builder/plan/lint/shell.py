"""The words of a shell line, as far as a lint has to know them; nothing is expanded or run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

_ENDS = frozenset({";", ";;", "&", "&&", "||", "|", "|&", "(", ")", "\n"})
_VALUED = frozenset(
    {
        *("-r", "--requirement", "-c", "--constraint", "-e", "--editable", "-t", "--target"),
        *("-i", "--index-url", "--extra-index-url", "--index", "--default-index"),
        *("-f", "--find-links", "--prefix", "--root", "--python", "-p", "--cache-dir"),
        *("--platform", "--python-version", "--only-binary", "--no-binary", "--index-strategy"),
        *("--trusted-host", "--timeout", "--retries", "--proxy", "--cert", "--link-mode"),
    }
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class PipCall:
    """A ``pip install``, by pip itself or through uv: options with their values, requirements."""

    options: tuple[tuple[str, str], ...]
    requirements: tuple[str, ...]

    def values(self, *names: str) -> tuple[str, ...]:
        """Return the values of the options of these names."""
        return tuple(value for name, value in self.options if name in names)


def words(text: str) -> tuple[str, ...]:
    """Split shell text into words and operators; quotes that do not end are read as they stand."""
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return tuple(lexer)
    except ValueError:
        return tuple(re.findall(r"\|\||&&|[;|&()]|[^\s;|&()]+", text.replace("\n", " ; ")))


def commands(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the simple commands of shell text, each as its words."""
    found: list[tuple[str, ...]] = []
    current: list[str] = []
    for word in (*words(text), ";"):
        if word not in _ENDS:
            current.append(word)
        elif current:
            found.append(tuple(current))
            current = []
    return tuple(found)


def has_pipe(text: str) -> bool:
    """Tell whether the output of a command goes to another one."""
    return any(word in ("|", "|&") for word in words(text))


def pip_call(command: tuple[str, ...]) -> PipCall | None:
    """Read a simple command as a call that installs packages, or return ``None``."""
    names = [PurePosixPath(word).name for word in command]
    for place, name in enumerate(names):
        if re.fullmatch(r"pip[0-9.]*", name):
            for verb in range(place + 1, len(names)):
                if names[verb] in ("install", "sync", "download", "wheel"):
                    return _read(command[verb + 1 :])
    return None


def _read(arguments: tuple[str, ...]) -> PipCall:
    options: list[tuple[str, str]] = []
    requirements: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("-"):
            requirements.append(word)
            continue
        name, equals, value = word.partition("=")
        if not equals and name in _VALUED:
            value = next(rest, "")
        options.append((name, value))
    return PipCall(tuple(options), tuple(requirements))


def requirement_name(text: str) -> str:
    """Return the normalised name of a requirement; empty for a path or an address."""
    if "://" in text.partition("@")[0] or text.startswith((".", "/", "$")):
        return ""
    found = _NAME.match(text.strip())
    return re.sub(r"[-_.]+", "-", found.group()).lower() if found else ""
