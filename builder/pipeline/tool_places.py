"""Where a step finds a tool that not every host has: on the host, else in the tools image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.apptainer import Apptainer, container_options
from builder.engines.cosign import Cosign
from builder.engines.places import ToolsPlace, User, find_program
from builder.errors import CouldNotError, Problem, RocmTorchError
from builder.pipeline.selftest import workspace_label
from builder.pipeline.services import tools_image

if TYPE_CHECKING:
    from builder.engines.places import Place
    from builder.pipeline.session import Session


def apptainer(session: Session) -> Apptainer:
    """Return the host's Apptainer, or the tools image's where it has none.

    Raises:
        CouldNotError: ``APPTAINER_MISSING``, when neither is to be had.
    """
    host = find_program("apptainer", os.environ)
    return Apptainer(session.tools.runner, host or _apptainer_image(session))


def converter(session: Session) -> Apptainer:
    """Return an Apptainer whose conversions can be tuned; errors as above.

    One before 1.4 passes nothing on to ``mksquashfs``: the tools image's is taken in its place,
    and the host's all the same where there is no container engine.
    """
    ours = apptainer(session)
    if ours.can_tune():
        return ours
    try:
        better = Apptainer(session.tools.runner, _apptainer_image(session))
    except CouldNotError:
        return ours
    told = f"{ours.place.name} cannot tune mksquashfs, and the tools image's is used"
    session.tools.progress.say("", "sif", told)
    return better


def _apptainer_image(session: Session) -> Place:
    options = container_options(fuse=Path("/dev/fuse").exists())
    fix = "load the site's module that has apptainer, or mend what follows"
    return _in_tools_image(session, "apptainer", options, fix)


def cosign(session: Session) -> Cosign:
    """Return the host's cosign, or the tools image's where it has none or an old one.

    Raises:
        CouldNotError: ``COSIGN_MISSING``, when neither is to be had.
    """
    scratch = session.workspace.state / "signing"
    host = find_program("cosign", os.environ)
    if host is not None:
        ours = Cosign(session.tools.runner, host, scratch)
        if ours.can_bundle():
            return ours
        told = f"{host.program} is older than version 3, and the tools image's is used"
        session.tools.progress.say("", "sign", told)
    place = _in_tools_image(session, "cosign", (), "install cosign 3, or mend what follows")
    return Cosign(session.tools.runner, place, scratch)


def _in_tools_image(session: Session, program: str, options: tuple[str, ...], fix: str) -> Place:
    try:
        image = tools_image(session)
    except RocmTorchError as error:
        raise CouldNotError(
            (
                Problem(
                    code=f"{program.upper()}_MISSING",
                    what=f"no {program} that will do is on PATH, and the tools image cannot be had",
                    fix=fix,
                ),
                *error.problems,
            )
        ) from error
    labels = tuple(f"{key}={value}" for key, value in workspace_label(session).items())
    return ToolsPlace(image, program, User(os.getuid(), os.getgid()), options, labels)
