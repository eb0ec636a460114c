"""Check ``shells``: whichever way a shell is started, ``python`` is the one that has torch.

A login shell reads /etc/profile, which sets PATH anew on Debian; a Python that is found through
ENV alone is lost there.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any, Mapping

from rocm_torch_selftest.context import NO_CELL, Context, Ran, run_program
from rocm_torch_selftest.outcome import failed, not_applicable, passed, skipped

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

FORMS = (("bash", "-lc"), ("bash", "-c"), ("sh", "-c"), ("sh", "-lc"))
_QUESTION = (
    "import importlib.util, json, sys; "
    "spec = importlib.util.find_spec('torch'); "
    "print(json.dumps([sys.executable, spec.origin if spec else None]))"
)


def run(context: Context) -> Outcome:
    """Ask the default ``python`` of each shell where it is and where its torch is."""
    if context.cell is None:
        return not_applicable(NO_CELL)
    answers: dict[str, Any] = {}
    for shell, option in FORMS:
        if shutil.which(shell) is None:
            continue
        context.stage(f"{shell} {option} python")
        said = run_program([shell, option, f'python -c "{_QUESTION}"'], cwd=context.scratch)
        answers[f"{shell} {option}"] = answer_of(said)
    return judge(answers, sys.executable)


def answer_of(said: Ran) -> Any:
    """Return ``[executable, file of torch]`` as the shell's python printed it, else its words."""
    if said.status != 0:
        return said.last_line
    try:
        # A profile may print something first.
        return json.loads(said.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return said.last_line


def judge(answers: Mapping[str, Any], executable: str) -> Outcome:
    """Judge the answers: one python in all shells, this one, and it finds torch."""
    if not answers:
        return skipped("There is neither bash nor sh here.")
    problems = []
    for shell, answer in answers.items():
        if not isinstance(answer, list):
            problems.append(f"{shell}: python does not run ({answer})")
        elif answer[0] != executable:
            problems.append(f"{shell}: python is {answer[0]}, not {executable}")
        elif not answer[1]:
            problems.append(f"{shell}: {answer[0]} does not find torch")
    if problems:
        return failed("; ".join(problems) + ".", answers=dict(answers))
    return passed(
        f"python is {executable}, and has torch, in {', '.join(answers)}.", answers=dict(answers)
    )
