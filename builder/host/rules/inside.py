"""``rocm-torch-doctor``: the same rules from inside an image, with its bare Python.

It tells three things apart: nodes that were not passed in, nodes that are here and closed, and
nodes that open and that the driver refuses.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from builder.host.rules.ask import accesses
from builder.host.rules.diagnose import diagnose
from builder.host.rules.facts import HostFacts, ImageFacts, facts_from_document
from builder.host.rules.text import lines
from builder.host.snapshot.document import to_document
from builder.host.snapshot.model import ToolOutput
from builder.host.snapshot.read import Surroundings, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.host.snapshot.model import HostSnapshot

SCHEMA = "rocm-torch/doctor/v1"
FACTS = "usr/lib/rocm-torch/doctor/facts.json"
CELL = "usr/share/rocm-torch/cell.json"
EXIT = {"pass": 0, "fail": 2, "incomplete": 3}
_TOOLS = (("amd-smi", "list"), ("rocm-smi", "--showbus"), ("rocminfo",))
_SECONDS = 10
_MOST = 20_000
_TIMED_OUT = 124


def main(words: list[str] | None = None) -> int:
    """Look, judge and print; return 0 pass, 2 an error was found, 3 there is nothing to judge."""
    options = _options().parse_args(words)
    root = Path(options.root)
    # Programs of a stand-in tree are not ours to start; the real ones look at the real /dev.
    tools = () if options.no_tools or options.root != "/" else tuple(_tools())
    snapshot = read_snapshot(
        root,
        Surroundings(
            environment=dict(os.environ),
            uid=os.getuid(),
            groups=tuple({os.getegid(), *os.getgroups()}),
            tools=tools,
        ),
    )
    if options.state:
        sys.stdout.write(json.dumps(to_document(snapshot), indent=1) + "\n")
        return 0
    facts = read_facts(root)
    found = diagnose(snapshot, facts)
    if options.json:
        document = {
            "schema": SCHEMA,
            "verdict": found.verdict,
            "reached": reached(snapshot),
            "findings": [finding.to_json() for finding in found.findings],
        }
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        text = (f"device nodes: {reached(snapshot)}", *lines(found))
        sys.stdout.write("\n".join(text) + "\n")
    return EXIT[found.verdict]


def reached(snapshot: HostSnapshot) -> str:
    """Return how far the nodes came: the three answers that the next step depends on."""
    if not snapshot.kfd and not snapshot.dxg:
        return "not passed in"
    results = {one.result for one in accesses(snapshot)}
    if "denied" in results or "EPERM" in results:
        return "passed in, not openable"
    if results - {"ok"}:
        return "openable by mode, refused by the driver"
    return "passed in and openable"


def read_facts(root: Path) -> HostFacts:
    """Return the facts that were put into the image, with what the image says of itself."""
    facts = HostFacts()
    try:
        facts = facts_from_document(json.loads((root / FACTS).read_text("utf-8")))
        cell = json.loads((root / CELL).read_text("utf-8"))
    except (OSError, ValueError):
        return facts
    image = ImageFacts(
        reference=str(cell.get("id", "image")),
        rocm=cell.get("rocm"),
        gfx=tuple(cell.get("gfx") or ()),
    )
    return HostFacts(facts.products, facts.windows, facts.supported, image)


def _tools() -> Iterator[ToolOutput]:
    for argv in _TOOLS:
        try:
            done = subprocess.run(  # noqa: UP022 - Python 3.8 too
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            yield ToolOutput(argv[0], _TIMED_OUT)
        except OSError:
            yield ToolOutput(argv[0], None)
        else:
            out, err = (
                text.decode("utf-8", "replace")[:_MOST] for text in (done.stdout, done.stderr)
            )
            yield ToolOutput(argv[0], done.returncode, out, err)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rocm-torch-doctor",
        description="Says why this container does not see the GPU, and what to change outside.",
        epilog="Example: rocm-torch-doctor --json",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--state", action="store_true", help="print what was seen, without names")
    parser.add_argument("--no-tools", action="store_true", help="start no other program")
    parser.add_argument("--root", default="/", help="look below this folder instead (for tests)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
