"""Chooses a directory of this user for kernel and model caches, at every start of Python.

A fixed place cannot work: under a read-only root, as an unknown user, or in a SIF it cannot be
written, and a shared one lets users trip over each other's files. So the first place is taken that
is this user's own and can be written. It runs before every program: no import beyond os and stat
(both are loaded by then), and whatever goes wrong, Python starts.
"""

from __future__ import annotations

import os
import stat

STATE = "ROCM_TORCH_CACHES"
UNAVAILABLE = "unavailable"
PLACES = {
    "MIOPEN_USER_DB_PATH": "miopen/db",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen/cache",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
}


def prepare(environ):
    """Set the cache variables that the user did not set; keep what a parent process chose."""
    base = environ.get(STATE)
    if base and base != UNAVAILABLE and usable(base):
        return
    if base and base != UNAVAILABLE:
        # Inherited from another user, as after `su`: what it chose is not ours.
        for name, leaf in PLACES.items():
            if environ.get(name) == base + "/" + leaf:
                del environ[name]
    for candidate in candidates(environ):
        if usable(candidate):
            environ[STATE] = candidate
            for name, leaf in PLACES.items():
                environ.setdefault(name, candidate + "/" + leaf)
            return
    environ[STATE] = UNAVAILABLE


def candidates(environ):
    """Yield directories to try, the most lasting first."""
    if environ.get("ROCM_TORCH_CACHE_DIR"):
        yield environ["ROCM_TORCH_CACHE_DIR"]
    if environ.get("XDG_CACHE_HOME", "").startswith("/"):
        yield environ["XDG_CACHE_HOME"] + "/rocm-torch"
    home = os.path.expanduser("~")
    if home.startswith("/") and home != "/":
        yield home + "/.cache/rocm-torch"
    for shared in ("/tmp", "/var/tmp", "/dev/shm"):
        yield "%s/rocm-torch-%d" % (shared, os.geteuid())


def usable(path):
    """Make the directory where needed and tell whether it is ours alone and can be written.

    In a shared place somebody may have put a link or a directory of that name first: a link is
    not followed, and what another user owns is not used.
    """
    try:
        make(path)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        if found.st_mode & 0o077:
            os.chmod(path, 0o700)
        probe = "%s/.probe-%d" % (path, os.getpid())
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.unlink(probe)
    except OSError:
        return False
    return True


def make(path):
    """Make one directory of mode 0700, and its parent where only that is missing."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        os.mkdir(os.path.dirname(path), 0o700)
        os.mkdir(path, 0o700)


try:
    prepare(os.environ)
except Exception:  # noqa: BLE001 - a cache is never worth a Python that does not start
    os.environ[STATE] = UNAVAILABLE
