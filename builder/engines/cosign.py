"""Adapter for cosign: signs the digest of a manifest with a key, and checks such a signature.

It is never given a registry and never a network: it reads and writes files, and the bundles travel
as referrers through our own client. What it writes is what ``cosign sign`` of cosign 3 attaches, a
Sigstore bundle over an in-toto statement, so ``cosign verify --key`` reads it.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.places import HostPlace, Invocation
from builder.errors import BadCallError, CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.engines.places import Place
    from builder.engines.process import Runner
    from builder.oci import Digest

_SECONDS = 120.0
# cosign, pkg/types: the predicate by which `cosign verify` tells a signature from an attestation.
PREDICATE = "https://sigstore.dev/cosign/sign/v1"
_PASSWORD = "COSIGN_PASSWORD"  # noqa: S105
_VARIABLE = "env://"
_NEEDED = "--signing-config"
# Documents that name no service: no transparency log, no time stamps, and nothing is looked up.
_NO_SERVICES = {"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}
_NO_ROOTS = {"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}
_NOT_TRUE = 1  # its own exit status; the engine's are 125 and above


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key: a file, ``env://NAME``, or the address of a key service (``awskms://...``).

    Attributes:
        reference: as cosign's ``--key`` takes it.
        caller: the caller's environment, which has the password and what a key service asks for.
    """

    reference: str
    caller: Mapping[str, str]

    def __repr__(self) -> str:
        """Show no value of the environment."""
        return f"SigningKey({self.reference!r})"

    @property
    def file(self) -> Path | None:
        """The file, where it is one."""
        return None if "://" in self.reference else Path(self.reference).absolute()

    @property
    def is_service(self) -> bool:
        """Tell whether a service has the key, which needs network and the caller's credentials."""
        return self.file is None and not self.reference.startswith(_VARIABLE)

    @property
    def handed_on(self) -> tuple[str, ...]:
        """The variables of the caller that signing needs."""
        if self.is_service:
            return tuple(self.caller)
        names = (_PASSWORD, self.reference.removeprefix(_VARIABLE))
        return tuple(name for name in names if name in self.caller)


class Cosign:
    """Calls one cosign of version 3 or later.

    Args:
        runner: starts it.
        place: where it runs.
        scratch: folder for its files, which an engine can mount; made when it is needed.
    """

    def __init__(self, runner: Runner, place: Place, scratch: Path) -> None:
        self._runner = runner
        self.place = place
        self._scratch = scratch

    def can_bundle(self) -> bool:
        """Tell whether it signs without any service; what came before version 3 does not."""
        call = Invocation(("attest-blob", "--help"), _SECONDS, {})
        return _NEEDED in self._runner.run(self.place.command(call)).stdout

    def sign(self, digest: Digest, manifest: bytes, key: SigningKey) -> bytes:
        """Sign a manifest and return the bundle.

        Args:
            digest: of ``manifest``.
            manifest: what is signed, by its digest.
            key: with which.

        Raises:
            BadCallError: ``SIGNING_KEY_MISSING``, ``SIGNING_KEY_ELSEWHERE``.
            CouldNotError: ``SIGNING_FAILED``.
        """
        self._check_key(key)
        with tempfile.TemporaryDirectory(prefix="sign-", dir=self._made()) as name:
            work = Path(name)
            bundle, subject = work / "bundle.json", work / digest.hex
            subject.write_bytes(manifest)
            (work / "predicate.json").write_text("{}", "ascii")
            (work / "services.json").write_text(json.dumps(_NO_SERVICES), "ascii")
            (work / "roots.json").write_text(json.dumps(_NO_ROOTS), "ascii")
            words = (
                *("attest-blob", "--yes", f"--key={key.file or key.reference}"),
                *(f"--type={PREDICATE}", f"--predicate={work / 'predicate.json'}"),
                *(f"--signing-config={work / 'services.json'}", f"--bundle={bundle}"),
                *(f"--trusted-root={work / 'roots.json'}", str(subject)),
            )
            environ = {} if _PASSWORD in key.caller else {_PASSWORD: ""}
            call = Invocation(
                words,
                _SECONDS,
                {"HOME": name, "TUF_ROOT": name, **environ},
                handed_on=key.handed_on,
                read=(key.file,) if key.file else (),
                write=(work,),
            )
            done = self._runner.run(self.place.command(call))
            if done.returncode != 0 or not bundle.is_file():
                raise CouldNotError(
                    Problem(
                        code="SIGNING_FAILED",
                        what=f"{self.place.name} did not sign (exit {done.returncode})",
                        where=key.reference,
                        why=done.tail(3) or None,
                        fix=f"check the key, and that {_PASSWORD} holds its password",
                    )
                )
            return bundle.read_bytes()

    def verify(self, digest: Digest, manifest: bytes, bundle: bytes, public: bytes) -> str | None:
        """Return why a bundle is no signature of a manifest by a key; None where it is one.

        Args:
            digest: of ``manifest``.
            manifest: what should have been signed.
            bundle: the bundle.
            public: the public key, as PEM.

        Raises:
            CouldNotError: ``SIGNATURE_NOT_CHECKED``.
        """
        with tempfile.TemporaryDirectory(prefix="verify-", dir=self._made()) as name:
            work = Path(name)
            key, subject, signed = work / "key.pub", work / digest.hex, work / "bundle.json"
            for path, content in ((key, public), (subject, manifest), (signed, bundle)):
                path.write_bytes(content)
            words = (
                *("verify-blob-attestation", "--insecure-ignore-tlog", f"--key={key}"),
                *(f"--type={PREDICATE}", f"--bundle={signed}", str(subject)),
            )
            call = Invocation(words, _SECONDS, {"HOME": name, "TUF_ROOT": name}, write=(work,))
            done = self._runner.run(self.place.command(call))
        if done.returncode == 0:
            return None
        if done.returncode == _NOT_TRUE:
            told = done.tail(1).strip()
            return told.partition("command execution: ")[2] or told
        raise CouldNotError(
            Problem(
                code="SIGNATURE_NOT_CHECKED",
                what=f"{self.place.name} did not check a signature (exit {done.returncode})",
                where=str(digest),
                why=done.tail(3) or None,
            )
        )

    def _made(self) -> Path:
        self._scratch.mkdir(parents=True, exist_ok=True)
        return self._scratch

    def _check_key(self, key: SigningKey) -> None:
        if key.file is not None and not key.file.is_file():
            raise BadCallError(
                Problem(
                    code="SIGNING_KEY_MISSING",
                    what="there is no such key",
                    where=key.reference,
                    fix="make one (`cosign generate-key-pair`), or write env://NAME or a key"
                    " service's address",
                )
            )
        name = key.reference.removeprefix(_VARIABLE)
        if key.reference.startswith(_VARIABLE) and name not in key.caller:
            raise BadCallError(
                Problem("SIGNING_KEY_MISSING", f"the variable {name} is not set", key.reference)
            )
        if key.is_service and not isinstance(self.place, HostPlace):
            raise BadCallError(
                Problem(
                    code="SIGNING_KEY_ELSEWHERE",
                    what="a key service is asked by this machine's own cosign, and there is none",
                    where=key.reference,
                    why=f"{self.place.name} gets neither network nor credentials",
                    fix="install cosign 3 or later",
                )
            )
