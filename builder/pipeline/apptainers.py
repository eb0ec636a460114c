"""Which Apptainer a step uses: the host's, else the one of the tools image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.apptainer import Apptainer, ToolsPlace, User, find_apptainer
from builder.errors import CouldNotError, Problem, RocmTorchError
from builder.pipeline.selftest import workspace_label
from builder.pipeline.services import tools_image

if TYPE_CHECKING:
    from builder.pipeline.session import Session


def apptainer(session: Session) -> Apptainer:
    """Return the host's Apptainer, or the tools image's where it has none.

    Raises:
        CouldNotError: ``APPTAINER_MISSING``, when neither is to be had.
    """
    host = find_apptainer(os.environ.get("PATH"))
    if host is not None:
        return Apptainer(session.tools.runner, host)
    try:
        image = tools_image(session)
    except RocmTorchError as error:
        raise CouldNotError(
            (
                Problem(
                    code="APPTAINER_MISSING",
                    what="no apptainer is on PATH, and the tools image cannot be had",
                    fix="load the site's module that has apptainer, or mend what follows",
                ),
                *error.problems,
            )
        ) from error
    labels = tuple(f"{key}={value}" for key, value in workspace_label(session).items())
    caller = User(os.getuid(), os.getgid())
    fuse = Path("/dev/fuse").exists()
    return Apptainer(session.tools.runner, ToolsPlace(image, caller, labels, fuse=fuse))
