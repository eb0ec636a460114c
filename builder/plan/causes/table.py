"""Every rule there is. A new one is a row in the module of its domain, and a case that shows it."""

from __future__ import annotations

from builder.plan.causes import apt, engine, export, libraries, network, pip

RULES = (
    *apt.RULES,
    *pip.RULES,
    *libraries.RULES,
    *export.RULES,
    *network.RULES,
    *engine.RULES,
)
