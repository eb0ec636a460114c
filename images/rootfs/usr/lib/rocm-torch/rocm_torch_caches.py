"""Choose a private cache directory for this user, at every start of Python.

An image has no place that suits every user: its home may be read-only or missing, the uid may be
unknown, and an entrypoint is skipped by ``docker exec`` and ``apptainer exec``. A fixed shared
directory would let one user plant kernels that another one runs. So a ``.pth`` line imports this
module whenever Python starts; it picks a directory that belongs to this user alone and tells
MIOpen, Triton, Inductor, Hugging Face and torch.hub of it, where the user has not told them.

``ROCM_TORCH_CACHES`` says what was done: the directory, or ``unavailable``. Set to ``off`` it
keeps this module from doing anything. Python 3.9 is enough; only ``os`` and ``stat`` are imported,
because each start of Python pays for it.
"""
# pathlib would cost more than all of this:
# ruff: noqa: PTH102, PTH112, PTH116

import os
import stat

STATE = "ROCM_TORCH_CACHES"
PLACES = {
    "MIOPEN_USER_DB_PATH": "miopen-db",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen-cache",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
}
# These two are content that people bring along, by a volume: where the directory that the library
# uses by itself is there already, it stays in use.
BROUGHT_ALONG = ("HF_HOME", "TORCH_HOME")
SHARED = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - owner and mode are checked
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def set_up(environment: "os._Environ[str]") -> None:
    """Set the cache variables that are missing, or that an other user's process left behind."""
    state = environment.get(STATE, "")
    if state == "off":
        return
    named = environment.get("ROCM_TORCH_CACHE_DIR", "")
    inherited = state if state.startswith("/") else ""
    if inherited and named in ("", inherited) and _is_ours(inherited):
        base = inherited
    else:
        base = _choose(environment, named)
        for variable, place in PLACES.items():
            if inherited and environment.get(variable) == f"{inherited}/{place}":
                del environment[variable]
    environment[STATE] = base or "unavailable"
    if base:
        cache_home = _cache_home(environment)
        for variable, place in PLACES.items():
            if variable in environment:
                continue
            if variable in BROUGHT_ALONG and os.path.isdir(f"{cache_home}/{place}"):
                continue
            environment[variable] = f"{base}/{place}"


def _choose(environment: "os._Environ[str]", named: str) -> str:
    """Return the first directory that fits, made if it was missing, or an empty string."""
    uid = os.geteuid()
    if named.startswith("/") and _fits(named, keep_mode=True):
        return named
    xdg = environment.get("XDG_CACHE_HOME", "")
    if xdg.startswith("/") and _make(xdg) and _fits(f"{xdg}/rocm-torch"):
        return f"{xdg}/rocm-torch"
    home = _home(environment)
    # A home of somebody else (su without -, sudo -E) would get directories that its owner cannot
    # use, and its owner could exchange them.
    if home and _owner(home) == uid:
        cache = f"{home}/.cache"
        if _make(cache) and _fits(f"{cache}/rocm-torch"):
            return f"{cache}/rocm-torch"
    for place in SHARED:
        if _is_safe_to_share(place) and _fits(f"{place}/rocm-torch-{uid}"):
            return f"{place}/rocm-torch-{uid}"
    return ""


def _home(environment: "os._Environ[str]") -> str:
    """Return the home directory, where there is one that deserves the name."""
    home = environment.get("HOME", "")
    if _is_home(home):
        return home
    try:
        import pwd

        home = pwd.getpwuid(os.geteuid()).pw_dir
    except (ImportError, KeyError, OSError):  # docker run --user 12345
        return ""
    return home if _is_home(home) else ""


def _is_home(path: str) -> bool:
    return path.startswith("/") and path.strip("/") != "" and os.path.isdir(path)


def _cache_home(environment: "os._Environ[str]") -> str:
    """Return where Hugging Face and torch.hub keep their caches by themselves."""
    return environment.get("XDG_CACHE_HOME") or environment.get("HOME", "") + "/.cache"


def _owner(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def _make(path: str) -> bool:
    """Make a directory for this user alone, unless it is there; say whether it is there now."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _is_safe_to_share(place: str) -> bool:
    """Say whether nobody else can exchange a directory of ours in this place."""
    try:
        mode = os.stat(place).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX) or not mode & (stat.S_IWGRP | stat.S_IWOTH)


def _fits(path: str, keep_mode: bool = False) -> bool:
    """Say whether a directory is there or can be made, is this user's alone, and has room.

    A directory that the user named keeps its mode, since it may hold more than our caches; it is
    refused where others can write to it.
    """
    if not _make(path):
        return False
    try:
        folder = os.open(path, DIRECTORY)
    except OSError:
        return False
    try:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid():
            return False
        if keep_mode:
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return False
        elif status.st_mode & 0o777 != 0o700:
            os.fchmod(folder, 0o700)
        space = os.fstatvfs(folder)
    except OSError:
        return False
    finally:
        os.close(folder)
    # Some file systems count no inodes at all: f_files is 0 there.
    has_room = space.f_bavail > 0 and (space.f_favail > 0 or space.f_files == 0)
    return has_room and _is_writable(path)


def _is_ours(path: str) -> bool:
    """Say whether a directory that an earlier process chose is good for this one: two calls."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and _is_writable(path)
    )


def _is_writable(path: str) -> bool:
    # Asking with effective ids takes a newer system call, which old container engines refuse.
    differ = os.getuid() != os.geteuid() or os.getgid() != os.getegid()
    return os.access(path, os.W_OK | os.X_OK, effective_ids=differ)


try:
    set_up(os.environ)
except (OSError, ValueError, NotImplementedError):
    # ValueError: a path with bytes that the file system takes as no name.
    os.environ[STATE] = "unavailable"
