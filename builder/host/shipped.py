"""The facts that rules need, as a JSON file beside the code: no YAML, no models to build.

Inside an image there is nothing to read YAML with, and on a host the doctor answers at once.
``builder/facts`` stays the only place where facts are written; a test holds the file to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from builder.host.rules.facts import facts_from_document

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts

SHIPPED = Path(__file__).with_name("host-facts.json")


def shipped_facts() -> HostFacts:
    """Return the facts of this package, without an image to compare with."""
    return facts_from_document(json.loads(SHIPPED.read_text("utf-8")))
