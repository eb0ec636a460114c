r"""Quoting: a value is written differently for each place it lands in; some land nowhere.

Sources of the grammars: POSIX shell (single quotes), the Dockerfile reference (double-quoted words
of ENV and LABEL, in which ``\``, ``"`` and ``$`` are special), RFC 8259 (JSON).
"""

from __future__ import annotations

import json
import re
import shlex

# Half of a surrogate pair is no character and cannot be written as UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029\ud800-\udfff]")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*")
_COMMENT_BREAK = re.compile(r"[^\x20-\x7e]")


def shell_word(value: str) -> str:
    """Return ``value`` as one word of the shell in a RUN line; ``ValueError`` on controls."""
    return shlex.quote(_one_line(value))


def docker_word(value: str) -> str:
    """Return ``value`` as the quoted word of ENV and LABEL; ``ValueError`` on controls."""
    escaped = _one_line(value).replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


def docker_key(value: str) -> str:
    """Return ``value`` where it can name a label or variable, else ``ValueError``."""
    if not _KEY.fullmatch(value):
        raise ValueError(f"not a name for a label or variable: {value!r}")
    return value


def image_reference(value: str) -> str:
    """Return ``value`` unchanged where it can stand in FROM, else ``ValueError``."""
    if not _IMAGE.fullmatch(value):
        raise ValueError(f"not an image reference: {value!r}")
    return value


def json_text(value: object) -> str:
    """Return ``value`` as JSON in one line."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def comment(value: str) -> str:
    """Return ``value`` so that it stays in a comment: one line of printable ASCII."""
    return _COMMENT_BREAK.sub("?", value)


def _one_line(value: str) -> str:
    if _CONTROL.search(value):
        raise ValueError(f"a control character or line break cannot stand here: {value!r}")
    return value
