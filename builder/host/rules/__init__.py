"""Why a container does not see the GPU: rules over a snapshot, pure and of the standard library.

The same files run inside the images with whatever Python those have, from 3.8 on.
"""

from builder.host.rules.diagnose import RULES, diagnose
from builder.host.rules.facts import (
    DriverWindow,
    HostFacts,
    ImageFacts,
    facts_from_document,
    facts_to_document,
)
from builder.host.rules.model import Diagnosis, Finding

__all__ = [
    "RULES",
    "Diagnosis",
    "DriverWindow",
    "Finding",
    "HostFacts",
    "ImageFacts",
    "diagnose",
    "facts_from_document",
    "facts_to_document",
]
