"""A key of a package repository is written only when it is the one that was asked for."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parents[2] / "images/rootfs/usr/lib/rocm-torch/fetch-key"
URL = "https://keys.invalid/rocm.gpg.key"


@dataclass(frozen=True)
class Keys:
    """Keys made by the real gpg: files by name, and the fingerprint of each."""

    folder: Path
    fingerprints: dict[str, str]

    def file(self, *names: str, armor: bool = True) -> Path:
        path = self.folder / f"{'-'.join(names)}.{'asc' if armor else 'gpg'}"
        options = ["--armor"] if armor else []
        wanted = [self.fingerprints[name] for name in names]
        path.write_bytes(gpg(self.folder, *options, "--export", *wanted))
        return path


def gpg(home: Path, *words: str) -> bytes:
    argv = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "", *words]
    return subprocess.run(argv, check=True, capture_output=True, timeout=120).stdout


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    found = {}
    for name, options in (
        ("good", ["never"]),
        ("other", ["never"]),
        ("expired", ["20200201T000000"]),
    ):
        past = ["--faked-system-time", "20200101T000000"] if name == "expired" else []
        gpg(
            home, *past, "--quick-generate-key", f"{name}@test.invalid", "ed25519", "sign", *options
        )
        listing = gpg(home, "--with-colons", "--list-keys", f"{name}@test.invalid").decode()
        lines = [line.split(":") for line in listing.splitlines()]
        found[name] = next(line[9] for line in lines if line[0] == "fpr")
    yield Keys(home, found)
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "gpg-agent"], check=True, timeout=60)


def fetch(
    fingerprint: str, output: Path, lent: Path | None, url: str = URL, **environment: str
) -> subprocess.CompletedProcess[str]:
    words = [url, fingerprint, str(output), *([str(lent)] if lent else [])]
    return subprocess.run(
        [SCRIPT, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": os.environ["PATH"], **environment},
    )


def fingerprints_in(path: Path, home: Path) -> list[str]:
    said = gpg(home, "--show-keys", "--with-colons", str(path)).decode()
    return [line.split(":")[9] for line in said.splitlines() if line.startswith("fpr")]


@pytest.mark.parametrize("armor", [True, False])
def test_the_right_key_is_written_in_ascii_whatever_form_it_came_in(
    keys: Keys, tmp_path: Path, armor: bool
) -> None:
    output = tmp_path / "keys/amd.asc"
    ran = fetch(keys.fingerprints["good"], output, keys.file("good", armor=armor))
    assert ran.returncode == 0, ran.stderr
    assert output.read_text("ascii").startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")
    assert fingerprints_in(output, keys.folder) == [keys.fingerprints["good"]]
    assert output.stat().st_mode & 0o777 == 0o644


def test_the_same_key_gives_the_same_bytes(keys: Keys, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert fetch(keys.fingerprints["good"], tmp_path / name, keys.file("good")).returncode == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_another_key_is_refused_and_both_fingerprints_are_told(keys: Keys, tmp_path: Path) -> None:
    ran = fetch(keys.fingerprints["good"], tmp_path / "out", keys.file("other"))
    assert ran.returncode == 1
    assert keys.fingerprints["good"] in ran.stderr
    assert keys.fingerprints["other"] in ran.stderr
    assert not (tmp_path / "out").exists()


def test_a_key_that_lies_beside_the_right_one_is_not_trusted(keys: Keys, tmp_path: Path) -> None:
    ran = fetch(keys.fingerprints["good"], tmp_path / "out", keys.file("good", "other"))
    assert ran.returncode == 0, ran.stderr
    assert fingerprints_in(tmp_path / "out", keys.folder) == [keys.fingerprints["good"]]


def test_an_expired_key_is_told_as_such(keys: Keys, tmp_path: Path) -> None:
    ran = fetch(keys.fingerprints["expired"], tmp_path / "out", keys.file("expired"))
    assert ran.returncode == 1
    assert "has expired" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_a_page_that_is_no_key_is_told_with_its_address(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("<html>not found</html>")
    ran = fetch("A" * 40, tmp_path / "out", page)
    assert ran.returncode == 1
    assert f"no OpenPGP key at {page}" in ran.stderr


def test_a_key_that_cannot_be_fetched_is_told_by_address_and_curls_reason(tmp_path: Path) -> None:
    """By a stub that says what curl says: no address of this test is ever asked."""
    (tmp_path / "curl").write_text(
        "#!/bin/sh\necho 'curl: (22) The requested URL returned error: 404' >&2\nexit 22\n"
    )
    (tmp_path / "curl").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = fetch("A" * 40, tmp_path / "out", None, PATH=path)
    assert ran.returncode == 1
    assert "error: 404" in ran.stderr
    assert URL in ran.stderr
    assert "OpenPGP" not in ran.stderr


def test_a_key_is_never_fetched_without_tls(tmp_path: Path) -> None:
    """The real curl refuses before it asks anybody."""
    ran = fetch("A" * 40, tmp_path / "out", None, url="http://127.0.0.1:9/key")
    assert ran.returncode == 1
    assert "rotocol" in ran.stderr


def test_a_site_can_name_the_address_of_its_copy_and_the_key_is_still_compared(
    keys: Keys, tmp_path: Path
) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=str(keys.folder))
    address = tmp_path / "lent"
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("good", "other"):
            file = keys.file(name).name
            address.write_text(f"http://127.0.0.1:{server.server_port}/{file}\n")
            ran = fetch(keys.fingerprints["good"], tmp_path / name, address)
            assert ran.returncode == (0 if name == "good" else 1), ran.stderr
        server.shutdown()
