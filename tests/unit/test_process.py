from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from builder.engines.process import _KEEP_LINES, Command, Completed, ProcessRunner
from builder.errors import CouldNotError

LONG = 600.0
# Starts a grandchild that ignores SIGTERM and writes its number, and waits for ever.
FAMILY = """
sh -c 'trap "" TERM; echo $$ >"$1"; while :; do sleep 600; done' child "$1" &
until [ -s "$1" ]; do :; done
echo ready
wait
"""


def python(code: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *words)


def run(code: str, *words: str, timeout: float = 60, stdin: bytes | None = None) -> Completed:
    return ProcessRunner().run(Command(python(code, *words), timeout, stdin=stdin))


def until(condition: object, what: str, seconds: float = 20) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Tell whether a process has ended; one that nobody has waited for has ended too."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] in "ZX"


def test_output_error_and_status_are_told_apart() -> None:
    done = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert done.seconds > 0


def test_the_tail_is_of_standard_error_or_else_of_output() -> None:
    assert Completed((), 1, "a\nb\nc\n", " \n", 0).tail(2) == "b\nc"
    assert Completed((), 1, "a\n", "x\ny\n", 0).tail(1) == "y"


def test_the_environment_and_folder_are_those_that_were_given(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ.get('HOME'), os.environ['GIVEN'])"
    command = Command(python(code), 60, cwd=tmp_path, env={"GIVEN": "yes"})
    assert ProcessRunner().run(command).stdout == f"{tmp_path} None yes\n"


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
def test_standard_input_arrives_whole(size: int) -> None:
    done = run("import sys; print(len(sys.stdin.buffer.read()))", stdin=b"x" * size)
    assert done.stdout == f"{size}\n"


def test_standard_input_is_empty_when_none_is_given() -> None:
    assert run("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


def test_a_child_that_does_not_read_its_input_is_no_error() -> None:
    assert run("import os; os.close(0); print('done')", stdin=b"x" * 3_000_000).stdout == "done\n"


def test_the_limit_holds_for_a_child_that_does_not_read_its_input() -> None:
    with pytest.raises(CouldNotError) as caught:
        run("import time; time.sleep(600)", timeout=0.5, stdin=b"x" * 3_000_000)
    assert caught.value.problems[0].code == "TOOL_TIMEOUT"


def test_the_limit_ends_the_whole_group_even_what_ignores_the_polite_signal(
    tmp_path: Path,
) -> None:
    note = tmp_path / "pid"
    log = tmp_path / "log"
    with pytest.raises(CouldNotError) as caught:
        ProcessRunner(log).run(Command(("sh", "-c", FAMILY, "sh", str(note)), timeout=1.5))
    problem = caught.value.problems[0]
    assert problem.code == "TOOL_TIMEOUT"
    assert "1.5 s" in problem.what
    assert problem.why == "ready"
    until(lambda: gone(int(note.read_text())), "the grandchild still runs")
    assert json.loads(log.read_text())["timed_out"] is True


def test_end_all_ends_what_runs_and_nothing_is_started_after(tmp_path: Path) -> None:
    runner, note, found = ProcessRunner(), tmp_path / "pid", list[Completed]()
    command = Command(("sh", "-c", FAMILY, "sh", str(note)), timeout=LONG)
    thread = threading.Thread(target=lambda: found.append(runner.run(command)))
    thread.start()
    until(lambda: note.exists() and note.read_text(), "the program did not start")
    runner.end_all()
    thread.join(timeout=30)
    assert found[0].returncode < 0
    until(lambda: gone(int(note.read_text())), "the grandchild still runs")
    with pytest.raises(CouldNotError) as caught:
        runner.run(Command(python("print()"), timeout=60))
    assert caught.value.problems[0].code == "STOPPED"


def test_secrets_are_in_no_output_and_no_line() -> None:
    code = "import sys; print('a tok tok-long b'); print('<tok-long>', file=sys.stderr)"
    heard: list[str] = []
    command = Command(python(code.replace("tok", "t'+'o'+'k")), 60, secrets=("tok", "tok-long", ""))
    done = ProcessRunner().run(command, lambda _, line: heard.append(line))
    assert (done.stdout, done.stderr) == ("a *** *** b\n", "<***>\n")
    assert sorted(heard) == ["<***>", "a *** *** b"]


def test_a_timeout_does_not_tell_a_secret() -> None:
    code = "import sys, time; print('x' * 3 + 'y', flush=True); time.sleep(600)"
    with pytest.raises(CouldNotError) as caught:
        ProcessRunner().run(Command(python(code), timeout=1, secrets=("xxxy",)))
    assert caught.value.problems[0].why == "***"


def test_a_secret_in_argv_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="secret must not stand in argv") as caught:
        Command(("tool", "--password=hunter2"), 5, secrets=("hunter2",))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(Command(("tool",), 5, secrets=("hunter2",)))


@pytest.mark.parametrize("timeout", [0, -1, 86_400, float("inf"), float("nan")])
def test_a_command_without_a_sane_limit_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="time limit"):
        Command(("true",), timeout)


@pytest.mark.parametrize("argv", [(), ("",)])
def test_a_command_without_a_program_is_refused(argv: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="needs a program"):
        Command(argv, 5)


def test_a_missing_program_is_told_with_its_name() -> None:
    with pytest.raises(CouldNotError) as caught:
        ProcessRunner().run(Command(("no-such-tool-9",), 5))
    problem = caught.value.problems[0]
    assert problem.code == "TOOL_MISSING"
    assert "no-such-tool-9" in problem.what


def test_a_file_that_is_no_program_is_told(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("nothing\n")
    with pytest.raises(CouldNotError) as caught:
        ProcessRunner().run(Command((str(tmp_path / "tool"),), 5))
    assert caught.value.problems[0].code == "TOOL_NOT_STARTED"


def test_lines_are_heard_while_the_program_still_runs() -> None:
    read, write = os.pipe()
    heard: list[str] = []

    def on_line(_: str, line: str) -> None:
        heard.append(line)
        if line == "first":
            os.write(write, b"go\n")

    # The program ends only when its first line was heard.
    wait = f"/proc/{os.getpid()}/fd/{read}"
    code = f"print('first', flush=True); open({wait!r}).readline(); print('last')"
    ProcessRunner().run(Command(python(code), 60), on_line)
    os.close(read)
    os.close(write)
    assert heard == ["first", "last"]


def test_of_huge_output_the_end_is_kept_and_nothing_blocks() -> None:
    count = _KEEP_LINES + 1000
    done = run(f"import sys; sys.stdout.write('\\n'.join(map(str, range({count}))))")
    lines = done.stdout.splitlines()
    assert len(lines) == _KEEP_LINES
    assert lines[-1] == str(count - 1)


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert run(r"import sys; sys.stdout.buffer.write(b'a\xff\n')").stdout == "a�\n"


def test_each_call_is_one_line_of_json_also_from_many_threads(tmp_path: Path) -> None:
    log = tmp_path / "tools.jsonl"
    runner = ProcessRunner(log)
    commands = [Command(("sh", "-c", f"exit {code}"), 60) for code in range(8)]
    threads = [threading.Thread(target=runner.run, args=(command,)) for command in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(entry["returncode"] for entry in entries) == list(range(8))
    assert all(entry["argv"][0] == "sh" and not entry["timed_out"] for entry in entries)
