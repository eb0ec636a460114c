"""The words that cosign is called with, and which keys it is trusted with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder.engines.cosign import PREDICATE, Cosign, SigningKey
from builder.engines.places import HostPlace, ToolsPlace, User
from builder.engines.process import Command, Completed
from builder.errors import BadCallError, CouldNotError, RefusedError
from builder.oci import Digest
from builder.pipeline.signing import read_public_key
from builder.report.verification import check_signatures

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.engines.places import Place
    from builder.engines.process import Stream

MANIFEST = b'{"schemaVersion":2}'
DIGEST = Digest.of(MANIFEST)
HERE = HostPlace(Path("/usr/bin/cosign"), {"PATH": "/usr/bin"})
TOOLS = ToolsPlace("tools:1", "cosign", User(7, 8))
SECRET = "hush hush"  # noqa: S105


class Answers:
    """A runner that writes the bundle that a call names, and keeps what it was asked."""

    def __init__(self, code: int = 0, stderr: str = "", stdout: str = "") -> None:
        self.asked: list[Command] = []
        self._code, self._stderr, self._stdout = code, stderr, stdout

    def run(
        self,
        command: Command,
        on_line: Callable[[Stream, str], None] | None = None,  # noqa: ARG002
    ) -> Completed:
        self.asked.append(command)
        for word in command.argv:
            if word.startswith("--bundle=") and "attest-blob" in command.argv and not self._code:
                Path(word.removeprefix("--bundle=")).write_bytes(b"{}")
        return Completed(command.argv, self._code, self._stdout, self._stderr, 0.0)


def cosign(tmp_path: Path, answers: Answers, place: Place = HERE) -> Cosign:
    return Cosign(answers, place, tmp_path / "signing")


def key_file(tmp_path: Path) -> str:
    path = tmp_path / "my key"
    path.write_text("PRIVATE", "ascii")
    return str(path)


@pytest.mark.parametrize("place", [HERE, TOOLS])
def test_a_password_stands_in_no_argument_and_nothing_is_left(tmp_path: Path, place: Place) -> None:
    answers = Answers()
    key = SigningKey(key_file(tmp_path), {"COSIGN_PASSWORD": SECRET})
    assert cosign(tmp_path, answers, place).sign(DIGEST, MANIFEST, key) == b"{}"
    (command,) = answers.asked
    assert not any(SECRET in word for word in command.argv)
    assert SECRET not in repr(key)
    assert f"--type={PREDICATE}" in command.argv
    assert not any((tmp_path / "signing").iterdir())


def test_without_a_password_an_empty_one_is_given_so_that_nothing_waits_for_an_answer(
    tmp_path: Path,
) -> None:
    answers = Answers()
    cosign(tmp_path, answers).sign(DIGEST, MANIFEST, SigningKey(key_file(tmp_path), {}))
    assert (answers.asked[0].env or {})["COSIGN_PASSWORD"] == ""


def test_a_key_in_a_variable_is_handed_on_by_name_with_its_password_alone(tmp_path: Path) -> None:
    answers = Answers()
    caller = {"MY_KEY": SECRET, "COSIGN_PASSWORD": "p", "AWS_SECRET_ACCESS_KEY": "no"}
    cosign(tmp_path, answers, TOOLS).sign(DIGEST, MANIFEST, SigningKey("env://MY_KEY", caller))
    words = answers.asked[0].argv
    assert {word for word in words if word.startswith("--env=")} >= {
        "--env=MY_KEY",
        "--env=COSIGN_PASSWORD",
    }
    assert not any("AWS" in word or SECRET in word for word in words)
    assert "--network=none" in words


@pytest.mark.parametrize(
    ("reference", "place", "code"),
    [
        ("/no/such/key", HERE, "SIGNING_KEY_MISSING"),
        ("env://NOT_SET", HERE, "SIGNING_KEY_MISSING"),
        ("awskms:///alias/x", TOOLS, "SIGNING_KEY_ELSEWHERE"),
    ],
)
def test_a_key_that_is_not_to_be_had_is_a_bad_call(
    tmp_path: Path, reference: str, place: Place, code: str
) -> None:
    with pytest.raises(BadCallError, match=code):
        cosign(tmp_path, Answers(), place).sign(DIGEST, MANIFEST, SigningKey(reference, {}))


def test_a_service_gets_the_callers_credentials_from_the_machines_own_cosign(
    tmp_path: Path,
) -> None:
    answers = Answers()
    key = SigningKey("awskms:///alias/x", {"AWS_PROFILE": "p"})
    place = HostPlace(Path("/usr/bin/cosign"), key.caller)
    cosign(tmp_path, answers, place).sign(DIGEST, MANIFEST, key)
    assert (answers.asked[0].env or {})["AWS_PROFILE"] == "p"


def test_what_is_no_signature_is_told_and_an_engine_that_fails_is_no_verdict(
    tmp_path: Path,
) -> None:
    said = "Error: x\nerror during command execution: digests do not match"
    told = cosign(tmp_path, Answers(1, said)).verify(DIGEST, MANIFEST, b"{}", b"key")
    assert told == "digests do not match"
    with pytest.raises(CouldNotError, match="SIGNATURE_NOT_CHECKED"):
        cosign(tmp_path, Answers(125, "no engine")).verify(DIGEST, MANIFEST, b"{}", b"key")


def test_an_old_cosign_is_known_by_what_its_help_does_not_have(tmp_path: Path) -> None:
    assert not cosign(tmp_path, Answers(stdout="Flags:\n --key\n")).can_bundle()
    assert cosign(tmp_path, Answers(stdout="Flags:\n --signing-config=''\n")).can_bundle()


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----"])
def test_a_file_that_holds_no_public_key_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "cosign.pub"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RefusedError, match="PUBLIC_KEY_UNUSABLE"):
        read_public_key(path)


def test_signatures_hold_only_where_each_thing_has_one_by_the_key() -> None:
    (good,) = check_signatures({"image": None, "SPDX": None})
    assert good.state == "ok"
    bad = check_signatures({"image": None, "SPDX": (), "test report": ("another key",)})
    assert [(one.subject, one.state, one.code) for one in bad] == [
        ("signature of the SPDX", "missing", "NOT_SIGNED"),
        ("signature of the test report", "lie", "SIGNATURE_WRONG"),
    ]
