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
# A package by name, file, group or version; never an option, which would begin with a dash.
_PACKAGE = re.compile(r"[A-Za-z0-9@/][A-Za-z0-9@/+._:=~^-]*")
# The kernel's part of the GPU driver belongs to the host, and so do headers of the host's kernel.
_DRIVER = re.compile(r"(.*[-_])?dkms([-_=:].*)?|kmod-amdgpu.*|(linux-(headers|image)|kernel)(-.*)?")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%+,=@-]*)*")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_+:~-]*")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
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


def package(value: str) -> str:
    """Return ``value`` as one word of the shell that names a package, else ``ValueError``.

    Packages of the kernel driver are refused: an image has no kernel (ROCm's own report 459).
    """
    if not _PACKAGE.fullmatch(value):
        raise ValueError(f"not the name of a package: {value!r}")
    if _DRIVER.fullmatch(value):
        raise ValueError(
            f"{value!r} is part of the kernel driver, which belongs to the host and not into an "
            "image; leave it out (amdgpu-install has --no-dkms for this)"
        )
    return shlex.quote(value)


def file_name(value: str) -> str:
    """Return ``value`` where it can name a file whose ending we add, else ``ValueError``.

    apt passes over files with a dot in the name.
    """
    if not _FILE_NAME.fullmatch(value):
        raise ValueError(f"not a file name without ending: {value!r}")
    return value


def url(value: str) -> str:
    """Return ``value`` where it is an address that apt and dnf read as one, else ``ValueError``.

    No ``$``, which dnf replaces, no blank, which parts values, no login.
    """
    if not _URL.fullmatch(value):
        raise ValueError(f"not the address of a repository or file: {value!r}")
    return value


def https_url(value: str) -> str:
    """Return ``value`` where it is an address under ``https://``, else ``ValueError``."""
    if not value.startswith("https://"):
        raise ValueError(f"not an https:// address: {value!r}")
    return url(value)


def plain_word(value: str) -> str:
    """Return ``value`` where apt, dnf and the shell all read it as itself, else ``ValueError``.

    For suites, components, origins, and names and versions of interpreters.
    """
    if not _PLAIN_WORD.fullmatch(value):
        raise ValueError(f"not a plain word: {value!r}")
    return value


def fingerprint(value: str) -> str:
    """Return ``value`` where it is the whole fingerprint of a key, else ``ValueError``."""
    if not _FINGERPRINT.fullmatch(value):
        raise ValueError(f"not a fingerprint of 40 upper-case hexadecimal digits: {value!r}")
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
