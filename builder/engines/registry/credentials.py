"""Who we are to a registry, as Docker's configuration file and its helpers say."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from builder.engines.process import Command
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.engines.process import Completed, Runner

HUB = "docker.io"
_HUB_NAMES = (HUB, "index.docker.io", "registry-1.docker.io")
_HUB_KEY = "https://index.docker.io/v1/"
_TOKEN_USER = "<token>"  # noqa: S105 - the marker by which helpers hand out an identity token
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """A name and a secret; with ``identity_token`` the secret is an OAuth2 refresh token."""

    username: str
    secret: str = field(repr=False)
    identity_token: bool = False

    @property
    def basic(self) -> str:
        """Return the value of an ``Authorization`` header; never to be written down."""
        pair = f"{self.username}:{self.secret}".encode()
        return "Basic " + base64.b64encode(pair).decode("ascii")


def load_credentials(
    config: Mapping[str, Any], host: str, run_helper: Runner
) -> Credentials | None:
    """Return the credentials for ``host``, or ``None`` where the configuration has none.

    Args:
        config: the parsed Docker configuration file (``{}`` where there is none).
        host: registry as it stands in a reference, with its port.
        run_helper: starts ``docker-credential-NAME get``; it must not log what a program prints.

    Raises:
        CouldNotError: ``CREDENTIAL_HELPER_MISSING``, ``CREDENTIAL_HELPER_FAILED``, or
            ``CREDENTIALS_UNREADABLE`` where an entry is damaged. None of them holds a secret.
    """
    helper = _helper_name(config, host)
    if helper:
        found = _ask_helper(helper, host, run_helper)
        if found is not None:
            return found
    for key, entry in _mapping(config, "auths").items():
        if _same_host(key, host) and isinstance(entry, dict):
            found = _from_entry(entry, host)
            if found is not None:
                return found
    return None


def _helper_name(config: Mapping[str, Any], host: str) -> str | None:
    for key, name in _mapping(config, "credHelpers").items():
        if _same_host(key, host):
            return str(name) or None
    return str(config.get("credsStore") or "") or None


def _ask_helper(name: str, host: str, runner: Runner) -> Credentials | None:
    program = f"docker-credential-{name}"
    server = _HUB_KEY if host in _HUB_NAMES else host
    try:
        done = runner.run(Command((program, "get"), timeout=_SECONDS, stdin=server.encode()))
    except CouldNotError as error:
        if error.problems[0].code != "TOOL_MISSING":
            raise
        raise CouldNotError(
            Problem(
                code="CREDENTIAL_HELPER_MISSING",
                what=f"Docker's configuration names the credential helper {program}, and there is"
                " no such program on PATH",
                where=host,
                fix=f"install {program}, or take `credsStore`/`credHelpers` out of Docker's"
                f" config.json and run: docker login {host}",
            )
        ) from error
    if done.returncode != 0:
        if "credentials not found" in (done.stdout + done.stderr).lower():
            return None
        raise _helper_failed(program, host, f"it ended with status {done.returncode}")
    return _from_helper(program, host, done)


def _from_helper(program: str, host: str, done: Completed) -> Credentials | None:
    # No cause is chained here: a decoder's error carries the text, and the text the secret.
    try:
        answer = json.loads(done.stdout)
        username, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise _helper_failed(program, host, "its answer is not the JSON of the protocol") from None
    if not secret:
        return None
    return Credentials(username, secret, identity_token=username == _TOKEN_USER)


def _from_entry(entry: dict[str, Any], host: str) -> Credentials | None:
    identity = entry.get("identitytoken")
    if isinstance(identity, str) and identity:
        return Credentials(_TOKEN_USER, identity, identity_token=True)
    encoded = entry.get("auth")
    if not encoded:
        username, secret = entry.get("username"), entry.get("password")
        return Credentials(str(username), str(secret)) if username and secret else None
    try:
        text = base64.b64decode(str(encoded), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    username, colon, secret = text.partition(":")
    if not colon or not username:
        raise CouldNotError(
            Problem(
                code="CREDENTIALS_UNREADABLE",
                what="the `auth` entry of Docker's configuration is not base64 of name:secret",
                where=host,
                fix=f"run: docker login {host}",
            )
        )
    return Credentials(username, secret.rstrip("\0"))


def _mapping(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def _same_host(key: str, host: str) -> bool:
    name = key.removeprefix("https://").removeprefix("http://").partition("/")[0]
    return name == host or (name in _HUB_NAMES and host in _HUB_NAMES)


def _helper_failed(program: str, host: str, how: str) -> CouldNotError:
    return CouldNotError(
        Problem(
            code="CREDENTIAL_HELPER_FAILED",
            what=f"the credential helper {program} gave no credentials: {how}",
            where=host,
            fix=f"run it by hand to see why (echo {host} | {program} get), or: docker login {host}",
        )
    )
