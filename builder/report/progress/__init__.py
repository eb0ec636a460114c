"""What a run says while it works, on standard error: one state, and a display for each reader.

Standard output belongs to the result, so that a caller can read it whatever is shown meanwhile.
"""

from __future__ import annotations

from builder.report.progress.events import Event, Progress, Silent, timed
from builder.report.progress.plain import PlainProgress

__all__ = ["Event", "PlainProgress", "Progress", "Silent", "timed"]
