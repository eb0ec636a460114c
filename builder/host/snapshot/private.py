"""Takes out of a snapshot what says who and where its owner is, and leaves what rules look at.

A saved state is made to be sent to strangers. Version numbers look like addresses, PCI addresses
like network ones, and hosts of public package indexes decide rules: those stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEX = "[0-9a-f]{1,4}"
_IPV4 = re.compile(r"(?<![\w.-])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.-])")
_VERSION = re.compile(r"version|kernel|firmware|bios|driver|rocm", re.IGNORECASE)
_URL_HOST = re.compile(r"(://(?:\(login\)@)?)(\[[^\]\s]*\]|[^\s/:?#()]+)")
_PATTERNS = (
    (re.compile(r"(?<=://)[^\s/@]+(?=@)"), "(login)"),
    (re.compile(r"(?i)(://[^\s?#]*)[?#]\S+"), r"\1?(query)"),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE), "(address)"),
    (re.compile(rf"(?i)(?<![\w:])(?:{_HEX}:){{7}}{_HEX}(?![\w:])"), "(address)"),
    (
        re.compile(rf"(?i)(?<![\w:.])(?:{_HEX}(?::{_HEX})*)?::{_HEX}(?::{_HEX})*(?![\w:])"),
        "(address)",
    ),
    (re.compile(r"[\w.+-]+(?<!\))@[\w-]+(?:\.[\w-]+)+"), "(mail)"),
    (re.compile(r"(?i)\b(?:hf|gh[opsu]|glpat|sk|xox[abps])[-_][A-Za-z0-9_-]{10,}"), "(token)"),
    (re.compile(r'(?i)("(?:auth|identitytoken|registrytoken)"\s*:\s*)"[^"]*"'), r'\1"(token)"'),
    (re.compile(r"\bgithub_pat_\w{10,}"), "(token)"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "(token)"),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]+\.[\w-]*"), "(token)"),
    (re.compile(r"(?i)\b(bearer|basic)\s+(?!\()\S{8,}"), r"\1 (token)"),
    (re.compile(r"(?i)(\bserial[\w ]*[:=]\s*)(?!\()\S+"), r"\1(serial)"),
    (re.compile(r"(/home/|/users?/)(?!\(|[0-9]+(?:/|$))[^/\s:]+", re.IGNORECASE), r"\1(user)"),
)
_SECRET_NAME = re.compile(
    r"(?i)(token|secret|passw|credential|auth|login|_key$|^key_|api_?key|cookie)"
)
_PERSONAL_NAME = re.compile(
    r"(?i)(^SLURM.*_(HOST|NODE|NAME|DIR|NODELIST|NODENAME)|_(USER|USERNAME|ACCOUNT|EMAIL))$"
)
# Indexes and registries that rules tell apart; every other host is somebody's.
_PUBLIC = re.compile(
    r"(?i)(?:.*\.)?(?:pypi\.org|pythonhosted\.org|pytorch\.org|radeon\.com|amd\.com|docker\.io|"
    r"docker\.com|ghcr\.io|quay\.io|github\.com|localhost)|127\.0\.0\.1"
)
_LOCAL_SCHEMES = ("unix://", "fd://", "npipe://", "file://")
# Short names are words of their own ("root", "amd"), and hiding those would hide the evidence.
_SHORTEST_NAME = 3
_NO_NAMES = frozenset({"root", "user", "localhost", "amd", "amdgpu", "rocm", "docker", "podman"})


def without_private(value: Any, names: Iterable[str] = ()) -> Any:
    """Return a JSON value without names, addresses and tokens.

    Args:
        value: what ``json.dumps`` takes.
        names: words that tell the owner (user, host name); taken out wherever they stand.
    """
    words = [
        name
        for name in sorted(set(names), key=len, reverse=True)
        if len(name) >= _SHORTEST_NAME and name.lower() not in _NO_NAMES
    ]
    return _clean(value, "", [re.compile(rf"(?i)(?<!\w){re.escape(word)}(?!\w)") for word in words])


def _clean(value: Any, key: str, names: list[re.Pattern[str]]) -> Any:
    if isinstance(value, dict):
        return {one: _clean(inner, str(one), names) for one, inner in value.items()}
    if isinstance(value, list):
        return [_clean(one, key, names) for one in value]
    if not isinstance(value, str):
        return value
    if value and (_SECRET_NAME.search(key) or _PERSONAL_NAME.search(key)):
        return "(redacted)"
    return "\n".join(_line(line, key, names) for line in value.split("\n"))


def _line(text: str, key: str, names: list[re.Pattern[str]]) -> str:
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    if not text.startswith(_LOCAL_SCHEMES):
        text = _URL_HOST.sub(_host, text)
    if not _VERSION.search(key) and not _VERSION.search(text):
        text = _IPV4.sub("(address)", text)
    for name in names:
        text = name.sub("(name)", text)
    return text


def _host(found: re.Match[str]) -> str:
    return found[0] if _PUBLIC.fullmatch(found[2]) else f"{found[1]}(host)"
