"""The test program that lies in every image: it shows that this torch is whole and works here.

It needs the standard library and torch, nothing else, and it imports torch only in child
processes, so that a torch which aborts, hangs or prints is a result and not the end of the test.
"""

from __future__ import annotations

SCHEMA = "rocm-torch/selftest/v1"
