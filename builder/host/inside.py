"""``rocm-torch-doctor``: the same rules inside an image, with its Python's standard library only.

It tells three things apart that all look like "no GPU": the device was not passed in, it was
passed in and cannot be opened, it can be opened and the driver refuses.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from builder.host.around import look_around, owner_names
from builder.host.rules import HostFacts, ImageFacts, diagnose, facts_from_document
from builder.host.snapshot import read_snapshot, to_document
from builder.host.told import EXIT_CODES, document, lines

CELL_FILE = Path("/usr/share/rocm-torch/cell.json")
FACTS_FILE = Path(__file__).parents[2] / "host-facts.json"
_BAD_CALL = 64


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """Leave with the exit code that a bad call has in all our programs."""
        self.print_usage(sys.stderr)
        self.exit(_BAD_CALL, f"{self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Look at this container, print what is wrong; 0 pass, 2 fail, 3 nothing to judge."""
    parser = _Parser(
        prog="rocm-torch-doctor",
        description="Why this container does not see the GPU, and what to do.",
        epilog="Example: docker run --rm --device=/dev/kfd --device=/dev/dri IMAGE"
        " rocm-torch-doctor",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", metavar="FILE", help="write what was seen, without names")
    parser.add_argument("--device-root", default="/", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    root = Path(options.device_root)
    around = look_around(root, os.environ, inside=True)
    snapshot = read_snapshot(root, around)
    if options.save:
        state = json.dumps(to_document(snapshot, owner_names(os.environ)), indent=1)
        try:
            Path(options.save).write_text(state + "\n", "utf-8")
        except OSError as error:
            sys.stderr.write(f"rocm-torch-doctor: {options.save}: {error.strerror}\n")
            return 1
    diagnosis = diagnose(snapshot, known())
    if options.json:
        sys.stdout.write(json.dumps(document(snapshot, diagnosis, {}), indent=1) + "\n")
    else:
        sys.stdout.write("\n".join(lines(snapshot, diagnosis, {})) + "\n")
    return EXIT_CODES[diagnosis.verdict]


def known(facts_file: Path = FACTS_FILE, cell_file: Path = CELL_FILE) -> HostFacts:
    """Return the facts and what this image is; without them the rules know less and still work."""
    facts = HostFacts()
    try:
        facts = facts_from_document(json.loads(facts_file.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        sys.stderr.write(f"rocm-torch-doctor: no facts in {facts_file}; judging without them\n")
    try:
        cell = json.loads(cell_file.read_text("utf-8"))
        image = ImageFacts(cell["id"], rocm=cell["rocm"], gfx=tuple(cell["gfx"]))
    except (OSError, ValueError, KeyError, TypeError):
        return facts
    return replace(facts, image=image)


if __name__ == "__main__":
    sys.exit(main())
