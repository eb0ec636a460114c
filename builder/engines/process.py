"""The one way to start another program: argv only, a time limit, no secret written down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Literal, Protocol

from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Stream = Literal["stdout", "stderr"]
_REDACTED = "***"
_KEEP_LINES = 200_000
_GRACE_SECONDS = 10.0
# MAX_ARG_STRLEN of Linux, with the zero byte that ends a string: execve(2).
MAX_WORD_BYTES = 131_072


@dataclass(frozen=True, slots=True)
class Command:
    """One call of a program.

    Attributes:
        argv: program and arguments; never a shell string.
        timeout: seconds after which the whole process group is ended.
        cwd: folder to run in; the caller's by default.
        env: the whole environment of the child; the caller's by default.
        stdin: bytes for standard input; closed by default.
        secrets: values that must not appear in logs, errors or results.
    """

    argv: tuple[str, ...]
    timeout: float
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    stdin: bytes | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Refuse a call that could not be safe."""
        if not self.argv or not self.argv[0]:
            raise ValueError("a command needs a program")
        if not 0 < self.timeout < 86_400:
            raise ValueError(f"a command needs a time limit of less than a day, not {self.timeout}")
        if any(secret and secret in word for secret in self.secrets for word in self.argv):
            raise ValueError("a secret must not stand in argv: pass it by environment or stdin")
        longest = max(len(word.encode(errors="surrogateescape")) + 1 for word in self._words())
        if longest > MAX_WORD_BYTES:
            raise CouldNotError(
                Problem(
                    code="ARGUMENT_TOO_LONG",
                    what=f"{self.argv[0]} would get a string of {longest} bytes in its arguments or"
                    f" environment, and one may have {MAX_WORD_BYTES}",
                    why='Linux refuses to start such a program ("Argument list too long")',
                    fix="hand it over as a file",
                )
            )

    def _words(self) -> tuple[str, ...]:
        return (*self.argv, *(f"{name}={value}" for name, value in (self.env or {}).items()))


@dataclass(frozen=True, slots=True)
class Completed:
    """How a call ended; output is redacted text, ``seconds`` is wall time."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    def tail(self, lines: int = 30) -> str:
        """Return the last ``lines`` lines of standard error, or of output where error is empty."""
        text = self.stderr if self.stderr.strip() else self.stdout
        return "\n".join(text.rstrip().splitlines()[-lines:])


class Runner(Protocol):
    """The seam between adapters and the operating system."""

    def run(
        self, command: Command, on_line: Callable[[Stream, str], None] | None = None
    ) -> Completed:
        """Run to the end; see :class:`ProcessRunner`."""
        ...


class StoppableRunner(Runner, Protocol):
    """A runner that can be stopped from another thread."""

    def end_all(self) -> None:
        """End what runs and start nothing more; see :class:`ProcessRunner`."""
        ...


class ProcessRunner:
    """Runs commands in process groups of their own and writes one JSON line a call to ``log``."""

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._log_lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._running_lock = threading.Lock()
        self._stopped = False

    def run(
        self, command: Command, on_line: Callable[[Stream, str], None] | None = None
    ) -> Completed:
        """Run ``command`` and return how it ended, whatever its exit status.

        ``on_line`` gets each line as it comes, from reader threads, one call at a time.

        Raises:
            CouldNotError: the program is not there (``TOOL_MISSING``), cannot be started, or ran
                past its limit (``TOOL_TIMEOUT``).
        """
        started = time.monotonic()
        process = self._start(command)
        readers = _Readers(process, command.secrets, on_line)
        timed_out = False
        try:
            readers.feed(command.stdin)
            process.wait(timeout=command.timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            self._end(process)
        except BaseException:
            self._end(process)
            raise
        finally:
            readers.join()
            with self._running_lock:
                self._running.discard(process)
        completed = Completed(
            argv=command.argv,
            returncode=process.returncode,
            stdout=readers.text("stdout"),
            stderr=readers.text("stderr"),
            seconds=time.monotonic() - started,
        )
        self._write_log(completed, timed_out=timed_out)
        if timed_out:
            raise CouldNotError(
                Problem(
                    code="TOOL_TIMEOUT",
                    what=f"{command.argv[0]} was stopped: it ran past {command.timeout:g} s",
                    where=" ".join(command.argv[:4]),
                    why=completed.tail(5) or None,
                )
            )
        return completed

    def end_all(self) -> None:
        """End every process group that is still running, and start nothing more.

        For Ctrl-C, from another thread: children have groups of their own and do not hear of it.
        """
        with self._running_lock:
            self._stopped = True
            running = tuple(self._running)
        for process in running:  # all at once, so that the slowest alone is waited for
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            self._end(process)

    def kill_all(self) -> None:
        """Kill every process group that is still running and wait for none.

        For a second Ctrl-C, from a signal handler: takes no lock that its own thread may hold.
        """
        for process in tuple(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _start(self, command: Command) -> subprocess.Popen[bytes]:
        with self._running_lock:  # so that end_all() sees either a process or none to come
            if self._stopped:
                raise CouldNotError(
                    Problem("STOPPED", f"{command.argv[0]} was not started: the run is stopped")
                )
            process = self._popen(command)
            self._running.add(process)
        return process

    @staticmethod
    def _popen(command: Command) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                env=None if command.env is None else dict(command.env),
                stdin=subprocess.PIPE if command.stdin is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except FileNotFoundError as error:
            raise CouldNotError(
                Problem(
                    code="TOOL_MISSING",
                    what=f"{error.filename or command.argv[0]!r} is not installed or not on PATH",
                    fix=f"install {command.argv[0]} and run the same command again",
                )
            ) from error
        except OSError as error:
            raise CouldNotError(
                Problem(
                    code="TOOL_NOT_STARTED",
                    what=f"{command.argv[0]} could not be started: {error.strerror}",
                )
            ) from error

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        # SIGKILL follows in any case: children that ignore SIGTERM outlive the program itself.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE_SECONDS)
        process.wait()

    def _write_log(self, completed: Completed, *, timed_out: bool) -> None:
        if self._log is None:
            return
        entry = {
            "argv": list(completed.argv),
            "returncode": completed.returncode,
            "seconds": round(completed.seconds, 3),
            "timed_out": timed_out,
        }
        with self._log_lock, self._log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")


class _Readers:
    """Drains both pipes of a process in threads, so that neither can fill up and block it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        secrets: tuple[str, ...],
        on_line: Callable[[Stream, str], None] | None,
    ) -> None:
        self._process = process
        # The longest first: where one secret begins like another, no rest of it may stay.
        self._secrets = sorted((secret for secret in secrets if secret), key=len, reverse=True)
        self._on_line = on_line
        self._turn = threading.Lock()
        self._lines: dict[Stream, deque[str]] = {
            "stdout": deque(maxlen=_KEEP_LINES),
            "stderr": deque(maxlen=_KEEP_LINES),
        }
        self._threads = [
            threading.Thread(target=self._drain, args=(name, pipe), daemon=True)
            for name, pipe in self._pipes()
        ]
        for thread in self._threads:
            thread.start()

    def _pipes(self) -> Iterator[tuple[Stream, IO[bytes]]]:
        if self._process.stdout is not None:
            yield "stdout", self._process.stdout
        if self._process.stderr is not None:
            yield "stderr", self._process.stderr

    def _drain(self, name: Stream, pipe: IO[bytes]) -> None:
        with pipe:
            for raw in pipe:
                line = self._redact(raw.decode("utf-8", "replace"))
                self._lines[name].append(line)
                if self._on_line is not None:
                    with self._turn:
                        self._on_line(name, line.rstrip("\n"))

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _REDACTED)
        return text

    def feed(self, data: bytes | None) -> None:
        """Write standard input from a thread too: a child that does not read must not block us."""
        if data is None or self._process.stdin is None:
            return
        thread = threading.Thread(target=self._write, args=(self._process.stdin, data), daemon=True)
        self._threads.append(thread)
        thread.start()

    @staticmethod
    def _write(pipe: IO[bytes], data: bytes) -> None:
        # A child that chooses not to read breaks the pipe; its exit status tells the rest.
        with contextlib.suppress(BrokenPipeError), pipe:
            pipe.write(data)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=_GRACE_SECONDS)

    def text(self, name: Stream) -> str:
        return "".join(self._lines[name])
