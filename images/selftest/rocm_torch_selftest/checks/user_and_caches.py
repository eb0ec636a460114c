"""Check ``user-and-caches``: this user has cache directories that are private and writable.

At Python start a hook of the image picks a directory for each cache. It must belong to this user
alone: a kernel cache that somebody else can write to is a way to run code as this user.
"""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping

from rocm_torch_selftest.context import NO_CELL, Context
from rocm_torch_selftest.outcome import failed, not_applicable, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

CACHE_VARIABLES = (
    "MIOPEN_USER_DB_PATH",
    "MIOPEN_CUSTOM_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "HF_HOME",
)
STATE_VARIABLE = "ROCM_TORCH_CACHES"
UNAVAILABLE = "unavailable"
LAST_RESORTS = (Path("/tmp"), Path("/dev/shm"))  # noqa: S108 - where the hook falls back to


def run(context: Context) -> Outcome:
    """Look at the caches of the user who runs this."""
    context.stage("look at the user and the caches")
    user = who()
    if context.cell is None and not any(os.environ.get(name) for name in CACHE_VARIABLES):
        return not_applicable(NO_CELL, **user)
    return judge(os.environ, os.getuid(), user)


def who() -> dict[str, Any]:
    """Return who runs this and whether the home directory can be written."""
    try:
        name: str | None = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # docker run --user 12345
        name = None
    home = os.environ.get("HOME")
    return {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": os.getgroups(),
        "user": name,
        "home": home,
        "home_writable": home is not None and can_write(Path(home)) is None,
    }


def can_write(folder: Path) -> str | None:
    """Try to write a file into a directory; return why that is not possible, or None."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".rocm-torch-selftest-") as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return None


def judge(environment: Mapping[str, str], uid: int, user: Mapping[str, Any]) -> Outcome:
    """Judge the cache variables as they stand in this process."""
    name = user["user"] or "without a name"
    if environment.get(STATE_VARIABLE) == UNAVAILABLE:
        return _without_caches(user)
    caches = {variable: environment.get(variable) for variable in CACHE_VARIABLES}
    problems = []
    for variable, value in caches.items():
        problem = problem_of(value, uid)
        if problem:
            problems.append(f"{variable} {problem}")
    if problems:
        return failed("; ".join(problems) + ".", caches=caches, **user)
    home = "writable" if user["home_writable"] else "not writable"
    return passed(
        f"User {uid} ({name}), home {home}; {len(caches)} caches are private and writable.",
        caches=caches,
        **user,
    )


def _without_caches(user: Mapping[str, Any]) -> Outcome:
    places = {str(place): can_write(place) for place in LAST_RESORTS}
    writable = [place for place, reason in places.items() if reason is None]
    if user["home_writable"]:
        writable.append(str(user["home"]))
    if writable:
        return failed(
            f"No cache directory was found, and {', '.join(writable)} can be written.",
            places=places,
            **user,
        )
    return passed(
        "No place can be written by this user, so there are no caches, as it was said; give a "
        "volume or --tmpfs /tmp to have them.",
        places=places,
        **user,
    )


def problem_of(value: str | None, uid: int) -> str | None:
    """Return what is wrong with the directory of a cache, as the end of a sentence, or None."""
    if not value:
        return "is not set"
    folder = Path(value)
    if not folder.is_absolute():
        return f"is {value}, which is not an absolute path"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return f"is {value}, which is no usable directory ({error})"
    if status.st_uid != uid:
        return f"is {value}, which belongs to user {status.st_uid} and not to {uid}"
    if not any(_private(place, uid) for place in (folder, *folder.parents)):
        mode = stat.S_IMODE(status.st_mode)
        return f"is {value} with mode {mode:04o}, and no directory above it is private"
    reason = can_write(folder)
    return None if reason is None else f"is {value}, which cannot be written ({reason})"


def _private(folder: Path, uid: int) -> bool:
    status = folder.stat()
    return status.st_uid == uid and not stat.S_IMODE(status.st_mode) & 0o077
