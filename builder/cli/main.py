"""The program: parse, call one function, print; a foreseen failure is no traceback."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from builder import __version__
from builder.cli import (
    bench_commands,
    build_commands,
    candidate_commands,
    ci_commands,
    doctor_command,
    explain_commands,
    lint_command,
    matrix_commands,
    prune_command,
    registry_commands,
    run_command,
    sif_commands,
    verify_command,
    why_command,
)
from builder.cli.common import Globals, find_project
from builder.cli.signals import Interrupts, StoppedError
from builder.errors import BadCallError, Problem, RocmTorchError
from builder.report.progress.choose import Style

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130
# The base of all errors about a call: click's. Newer versions of Typer carry a click of their own
# under a private name, so it is taken from what they make public.
_CallError = cast("type[typer.BadParameter]", typer.BadParameter.mro()[2])

app = typer.Typer(
    name="rocm-torch",
    help="Container images of PyTorch on AMD ROCm, from one matrix to tested, published digests.",
    epilog="Example: rocm-torch lock && rocm-torch release --registry localhost:5000 cpu-py313",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
matrix_commands.register(app)
explain_commands.register(app)
build_commands.register(app)
registry_commands.register(app)
sif_commands.register(app)
prune_command.register(app)
verify_command.register(app)
bench_commands.register(app)
ci_commands.register(app)
lint_command.register(app)
why_command.register(app)
candidate_commands.register(app)
doctor_command.register(app)
run_command.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rocm-torch {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    project: Annotated[
        Path | None, typer.Option(help="Working copy; the nearest one upwards by default.")
    ] = None,
    matrix: Annotated[Path | None, typer.Option(help="Another matrix file.")] = None,
    lock: Annotated[Path | None, typer.Option(help="Another lock file.")] = None,
    facts: Annotated[Path | None, typer.Option(help="Folder of other facts.")] = None,
    site: Annotated[
        Path | None,
        typer.Option(
            help="Settings of your site; site.yaml beside the matrix by default.",
            envvar="ROCM_TORCH_SITE",
        ),
    ] = None,
    wheelhouse: Annotated[
        Path | None,
        typer.Option(help="Folder of wheels to install torch from.", exists=True, file_okay=False),
    ] = None,
    signing_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Private key for lanes that are signed: file of cosign, env://NAME, or a key"
            " service's address.",
            envvar="ROCM_TORCH_SIGNING_KEY",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    progress: Annotated[
        Style, typer.Option(help="How progress is shown; auto: live on a terminal, else plain.")
    ] = Style.AUTO,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Fail when another run works here, do not wait.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Hold the options that stand before the command."""
    root = (project or find_project(Path.cwd())).absolute()
    interrupts: Interrupts | None = context.obj
    context.obj = Globals(
        project=root,
        matrix=matrix,
        lock=lock,
        facts=facts,
        site=site,
        wheelhouse=wheelhouse.absolute() if wheelhouse else None,
        signing_key=signing_key,
        quiet=quiet,
        wait=not no_wait,
        progress=progress,
        interrupts=interrupts,
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the program and leave with its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(run(words))


def run(words: list[str]) -> int:
    """Run one call and return its exit code: 0, 1, 2, 3, 64; 130 and 143 when it was stopped."""
    try:
        with Interrupts() as interrupts:
            result = typer.main.get_command(app).main(
                words, "rocm-torch", standalone_mode=False, obj=interrupts
            )
    except StoppedError as stopped:
        _tell_stopped(words, getattr(stopped, "__notes__", ()))
        return stopped.exit_code
    except RocmTorchError as error:
        from builder.pipeline.causes import explained

        error = explained(error)
        tell(error, as_json="--json" in words)
        return error.exit_code
    except _CallError as error:
        if words:
            tell(_bad_call(error), as_json="--json" in words)
        else:  # a call without words asks what there is: the message is the whole help
            sys.stderr.write(error.format_message() + "\n")
        return BadCallError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        result = _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if result == _INTERRUPTED:
        _tell_stopped(words, ())
    return result if isinstance(result, int) else 0


def _tell_stopped(words: list[str], notes: Sequence[str]) -> None:
    done = "".join(f": {note}" for note in notes)
    again = shlex.join(["rocm-torch", *words])
    sys.stderr.write(f"rocm-torch: stopped{done}; this goes on from here:\n  {again}\n")


def _bad_call(error: typer.BadParameter) -> BadCallError:
    what, context = error.format_message(), getattr(error, "ctx", None)
    fix = " ".join(context.get_usage().split()) if context else None
    return BadCallError(Problem("BAD_CALL", what, fix=fix))


def tell(error: RocmTorchError, *, as_json: bool) -> None:
    """Print a failure: to standard error for people, to standard output as JSON when asked for."""
    if as_json:
        document: dict[str, Any] = {
            "schema": "rocm-torch/error/v1",
            "error": error.kind,
            "exit_code": error.exit_code,
            "problems": [problem.to_json() for problem in error.problems],
            **({"answer": error.answer} if error.answer else {}),
        }
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return
    for problem in error.problems:
        sys.stderr.write(f"error: {problem}\n")
