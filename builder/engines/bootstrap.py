"""Makes a minimal Debian root from a package archive, for sites where no registry can be reached.

The tar is a function of the archive's state and the epoch: two runs give equal bytes, whatever
the machine (its name and resolver are kept out) and whichever mirror served the packages.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.process import Command
from builder.errors import CouldNotError, Problem
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from builder.engines.process import Completed, Runner

DEBIAN = "http://deb.debian.org/debian"
DEBIAN_SECURITY = "http://deb.debian.org/debian-security"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_INSTALL = "sudo apt-get install -y --no-install-recommends mmdebstrap debian-archive-keyring"
_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_URI = re.compile(r"(?:https?|file)://[^\s\[\]]+")
_SUITE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_CHUNK = 1 << 20

# What mmdebstrap copies from the machine, and what its own clean-up leaves: the bootstrap's
# sources, host name and resolver, logs, backups of databases, the linker's cache of inode numbers.
_CLEAN = (
    'cd "$1" && rm -rf etc/apt/sources.list etc/apt/sources.list.d/* etc/hostname etc/resolv.conf'
    " var/cache/ldconfig/* var/cache/debconf/*-old var/lib/dpkg/*-old var/lib/systemd/random-seed"
    " var/lib/apt/lists/* var/cache/apt/*.bin && find var/log -type f -delete"
)
_NO_NAMESPACE = re.compile(
    r"unshare|newuidmap|newgidmap|subuid|subgid|user namespace", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive: its canonical public address, the address that serves it here, its suites."""

    canonical: str
    uri: str
    suites: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse what would not be one word of a sources list."""
        for uri in (self.canonical, self.uri):
            if not _URI.fullmatch(uri):
                raise ValueError(f"not the address of a package archive: {uri!r}")
        for suite in self.suites:
            if not _SUITE.fullmatch(suite):
                raise ValueError(f"not the name of a suite: {suite!r}")


@dataclass(frozen=True, slots=True)
class Distribution:
    """What to install from: release name, archives, and the keyring that signs them."""

    suite: str
    archives: tuple[Archive, ...]
    keyring: Path = KEYRING
    components: tuple[str, ...] = ("main",)

    def sources(self) -> str:
        """Return the sources list of the image (deb822): canonical addresses, all suites."""
        return "\n".join(
            f"Types: deb\nURIs: {archive.canonical}\nSuites: {' '.join(archive.suites)}\n"
            f"Components: {' '.join(self.components)}\nSigned-By: {KEYRING}\n"
            for archive in self.archives
        )

    def lines(self) -> tuple[str, ...]:
        """Return one-line sources for the bootstrap itself, with the addresses that serve here."""
        return tuple(
            f"deb {archive.uri} {suite} {' '.join(self.components)}"
            for archive in self.archives
            for suite in archive.suites
        )


@dataclass(frozen=True, slots=True)
class Root:
    """A finished root: the uncompressed tar, its digest (a layer's diff id) and wall seconds."""

    tar: Path
    digest: Digest
    seconds: float


def debian(
    suite: str,
    *,
    archive: str = DEBIAN,
    security: str | None = DEBIAN_SECURITY,
    keyring: Path = KEYRING,
) -> Distribution:
    """Describe a Debian release: the release itself, its updates, and security where given."""
    main = Archive(DEBIAN, archive, (suite, f"{suite}-updates"))
    if security is None:
        return Distribution(suite, (main,), keyring)
    fixes = Archive(DEBIAN_SECURITY, security, (f"{suite}-security",))
    return Distribution(suite, (main, fixes), keyring)


def bootstrap_base(
    runner: Runner,
    distribution: Distribution,
    *,
    epoch: datetime,
    target: Path,
    is_root: bool,
    environ: Mapping[str, str],
    variant: str = "minbase",
    include: tuple[str, ...] = (),
    timeout: float = 900.0,
) -> Root:
    """Bootstrap ``distribution`` into the tar file ``target`` with mmdebstrap.

    Args:
        runner: starts the program.
        distribution: see :func:`debian`.
        epoch: no file in the tar is newer; with a time zone.
        target: tar to write; it appears in one step. Its folder needs room for the root twice.
        is_root: whether this process has uid 0; else a user namespace is used.
        environ: the caller's environment, of which the proxy settings are passed on.
        variant: package set of mmdebstrap.
        include: further packages.
        timeout: seconds after which the bootstrap is ended.

    Raises:
        CouldNotError: mmdebstrap or the keyring is missing, namespaces are not allowed, the
            archive cannot be used, or time ran out.
    """
    if not distribution.keyring.is_file():
        raise _missing(f"the keyring {distribution.keyring} is not there")
    with tempfile.TemporaryDirectory(prefix="bootstrap-", dir=target.parent) as name:
        work = Path(name)
        work.chmod(0o755)  # apt fetches as another user
        sources, tar = work / "debian.sources", work / "root.tar"
        sources.write_text(distribution.sources(), encoding="utf-8")
        sources.chmod(0o644)
        argv = (
            "mmdebstrap",
            "--quiet",
            f"--mode={'root' if is_root else 'unshare'}",
            f"--variant={variant}",
            "--format=tar",
            "--skip=output/dev",
            f"--keyring={distribution.keyring}",
            *(f"--include={package}" for package in include),
            f"--customize-hook={_CLEAN}",
            "--customize-hook=upload "
            f"{shlex.quote(str(sources))} /etc/apt/sources.list.d/debian.sources",
            distribution.suite,
            str(tar),
            *distribution.lines(),
        )
        env = _environment(environ, work, epoch)
        try:
            completed = runner.run(Command(argv, timeout=timeout, cwd=work, env=env))
        except CouldNotError as error:
            if error.problems[0].code == "TOOL_MISSING":
                raise _missing("mmdebstrap is not installed") from error
            raise
        if completed.returncode != 0 or not tar.is_file():
            raise _failed(distribution, completed, is_root=is_root)
        digest = _digest(tar)
        tar.replace(target)
    return Root(target, digest, completed.seconds)


def _environment(environ: Mapping[str, str], work: Path, epoch: datetime) -> dict[str, str]:
    if epoch.tzinfo is None:
        raise ValueError(f"an epoch needs a time zone: {epoch!r}")
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "HOME": str(work),
        "TMPDIR": str(work),
        "SOURCE_DATE_EPOCH": str(int(epoch.timestamp())),
        **{name: environ[name] for name in _PASSED_ON if name in environ},
    }


def _digest(path: Path) -> Digest:
    with path.open("rb") as stream:
        return Digest("sha256:" + hashlib.file_digest(stream, "sha256").hexdigest())


def _missing(what: str) -> CouldNotError:
    return CouldNotError(
        Problem(
            code="BOOTSTRAP_TOOL_MISSING",
            what=f"a Debian base cannot be made here: {what}",
            why="no registry serves the base, so it is bootstrapped from the package archive",
            fix=_INSTALL,
        )
    )


def _failed(distribution: Distribution, completed: Completed, *, is_root: bool) -> CouldNotError:
    where = " ".join(archive.uri for archive in distribution.archives)
    if not is_root and _NO_NAMESPACE.search(completed.stderr):
        return CouldNotError(
            Problem(
                code="BOOTSTRAP_NOT_ALLOWED",
                what="a Debian base cannot be made as this user: it gets no user namespace",
                why=completed.tail(3) or None,
                fix="run the same command with sudo, or let the administrator install uidmap and"
                " add ranges for you to /etc/subuid and /etc/subgid",
            )
        )
    return CouldNotError(
        Problem(
            code="BOOTSTRAP_FAILED",
            what=f"mmdebstrap could not make {distribution.suite}"
            f" (exit status {completed.returncode})",
            where=where,
            why=completed.tail(10) or None,
            fix="check that the archive is reachable and that the keyring is the one that signs it",
        )
    )
