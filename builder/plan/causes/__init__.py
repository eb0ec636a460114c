"""From what a program said to why it failed: the first cause, what to do, and whether to retry."""

from builder.plan.causes.classify import causes, first_cause
from builder.plan.causes.model import Cause, Output
from builder.plan.causes.stream import output_of_stream

__all__ = ["Cause", "Output", "causes", "first_cause", "output_of_stream"]
