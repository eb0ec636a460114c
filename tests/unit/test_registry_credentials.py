from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from builder.engines.process import Command, Completed, ProcessRunner, Stream
from builder.engines.registry import Credentials, load_credentials
from builder.errors import CouldNotError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "s3cr3t-of-the-test"  # noqa: S105
AUTH = base64.b64encode(f"alice:{SECRET}".encode()).decode()
ALICE = Credentials("alice", SECRET)


class Helper:
    """Answers as a credential helper would."""

    def __init__(self, stdout: str = "", returncode: int = 0) -> None:
        self.stdout, self.returncode = stdout, returncode
        self.commands: list[Command] = []

    def run(
        self,
        command: Command,
        on_line: Callable[[Stream, str], None] | None = None,  # noqa: ARG002
    ) -> Completed:
        self.commands.append(command)
        return Completed(command.argv, self.returncode, self.stdout, "", 0.0)


def answer(username: str = "alice") -> str:
    return json.dumps({"ServerURL": "x", "Username": username, "Secret": SECRET})


@pytest.mark.parametrize(
    "key", ["ghcr.io", "https://ghcr.io", "https://ghcr.io/v1/", "http://ghcr.io/v2/"]
)
def test_an_entry_is_found_by_its_host(key: str) -> None:
    assert load_credentials({"auths": {key: {"auth": AUTH}}}, "ghcr.io", Helper()) == ALICE


def test_the_hub_is_found_by_its_old_address() -> None:
    config = {"auths": {"https://index.docker.io/v1/": {"auth": AUTH}}}
    assert load_credentials(config, "docker.io", Helper()) == ALICE


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"auths": {"other.example": {"auth": AUTH}}},
        {"auths": {"ghcr.io": {}}},
        {"auths": {"ghcr.io.evil.example": {"auth": AUTH}}},
        {"auths": None, "credHelpers": []},
    ],
)
def test_no_entry_is_no_credentials(config: dict[str, Any]) -> None:
    assert load_credentials(config, "ghcr.io", Helper()) is None


def test_a_helper_of_the_host_goes_before_the_store() -> None:
    helper = Helper(answer())
    config = {"credHelpers": {"ghcr.io": "gh"}, "credsStore": "desktop"}
    assert load_credentials(config, "ghcr.io", helper) == ALICE
    assert helper.commands[0].argv == ("docker-credential-gh", "get")
    assert helper.commands[0].stdin == b"ghcr.io"


def test_the_store_is_asked_for_the_hub_by_its_old_address() -> None:
    helper = Helper(answer())
    load_credentials({"credsStore": "pass"}, "docker.io", helper)
    assert helper.commands[0].stdin == b"https://index.docker.io/v1/"


def test_a_helper_that_knows_nothing_leaves_the_file() -> None:
    helper = Helper("credentials not found in native keychain", returncode=1)
    config = {"credsStore": "pass", "auths": {"ghcr.io": {"auth": AUTH}}}
    assert load_credentials(config, "ghcr.io", helper) == ALICE


def test_a_helper_can_give_an_identity_token() -> None:
    found = load_credentials({"credsStore": "pass"}, "ghcr.io", Helper(answer("<token>")))
    assert found is not None
    assert found.identity_token


def test_an_identity_token_in_the_file_goes_before_the_password() -> None:
    config = {"auths": {"acr.example": {"auth": AUTH, "identitytoken": SECRET}}}
    found = load_credentials(config, "acr.example", Helper())
    assert found is not None
    assert found.identity_token


def test_a_helper_that_is_not_there_is_named() -> None:
    with pytest.raises(CouldNotError, match="docker-credential-not-there-9") as caught:
        load_credentials({"credsStore": "not-there-9"}, "ghcr.io", ProcessRunner())
    (problem,) = caught.value.problems
    assert problem.code == "CREDENTIAL_HELPER_MISSING"
    assert "docker login ghcr.io" in str(problem.fix)


@pytest.mark.parametrize(
    "helper", [Helper(SECRET, returncode=2), Helper(f'"{SECRET}'), Helper(f'{{"a": "{SECRET}"}}')]
)
def test_a_helper_that_fails_shows_no_secret(helper: Helper) -> None:
    with pytest.raises(CouldNotError, match="CREDENTIAL_HELPER_FAILED") as caught:
        load_credentials({"credsStore": "pass"}, "ghcr.io", helper)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_damaged_entry_shows_no_secret() -> None:
    config = {"auths": {"ghcr.io": {"auth": SECRET}}}
    with pytest.raises(CouldNotError, match="CREDENTIALS_UNREADABLE") as caught:
        load_credentials(config, "ghcr.io", Helper())
    assert SECRET not in str(caught.value)


def test_a_real_helper_is_called_by_argv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "docker-credential-real"
    program.write_text(f"#!/bin/sh\nread host\n[ $host = ghcr.io ] && echo '{answer()}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = load_credentials({"credsStore": "real"}, "ghcr.io", ProcessRunner(tmp_path / "log"))
    assert found == ALICE
    assert SECRET not in (tmp_path / "log").read_text()
