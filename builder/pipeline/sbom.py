"""Step sbom: what is in the image, as SPDX and CycloneDX, the same bytes on every machine."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.layout import Layout
from builder.engines.syft import Syft
from builder.errors import CouldNotError, Problem
from builder.oci import CYCLONEDX_JSON, SPDX_JSON, Digest
from builder.report.progress import Event, timed
from builder.report.records import SbomRecord, atomic_write
from builder.report.sbom import normalise_cyclonedx, normalise_spdx, packages

if TYPE_CHECKING:
    from builder.pipeline.session import Job, Session
    from builder.report.records import BuildRecord

FILES = {SPDX_JSON: "sbom.spdx.json", CYCLONEDX_JSON: "sbom.cyclonedx.json"}


def sbom(session: Session, job: Job, built: BuildRecord, *, force: bool = False) -> SbomRecord:
    """Describe the image of ``built`` unless that was done for its digest.

    Raises:
        CouldNotError: syft is missing or failed.
    """
    tools, workspace, digest = session.tools, session.workspace, Digest(built.digest)
    folder = workspace.evidence(digest)
    record = workspace.records.read(SbomRecord, built.cell, "sbom")
    if record and not force and record.digest == digest and _complete(record, folder):
        tools.progress.tell(Event(built.cell, "sbom", "done", "current"))
        return record
    with timed(tools.progress, built.cell, "sbom", tools.clock, "listing packages") as seconds:
        syft = Syft(tools.runner)
        with tempfile.TemporaryDirectory(prefix="sbom-", dir=workspace.state) as name:
            scratch = Path(name)
            view = Layout(workspace.layout).view(digest, scratch / "image")
            log = workspace.log(built.cell, "sbom")
            scan = syft.scan(view, scratch=scratch, log=log)
        image = f"{session.matrix.registry}/{session.matrix.image}"
        created = job.locked.created
        documents = {
            SPDX_JSON: normalise_spdx(
                scan.spdx, image_name=image, image_digest=digest, created=created
            ),
            CYCLONEDX_JSON: normalise_cyclonedx(
                scan.cyclonedx, image_name=image, image_digest=digest, created=created
            ),
        }
        listed = packages(json.loads(documents[SPDX_JSON]))
        _check_installed(job, {package.name for package in listed})
        for media_type, content in documents.items():
            atomic_write(folder / FILES[media_type], content)
        record = SbomRecord(
            cell=built.cell,
            step="sbom",
            finished=tools.now(),
            seconds=seconds(),
            digest=digest,
            documents={kind: Digest.of(content) for kind, content in documents.items()},
            packages=len(listed),
            scanner=f"syft {scan.syft_version}",
        )
        workspace.records.write(record)
    return record


def _check_installed(job: Job, listed: set[str]) -> None:
    """Refuse an SBOM that lacks what we installed: a scanner short of memory may end early."""
    missing = sorted(set(job.cell.packages) - listed)
    if missing:
        raise CouldNotError(
            Problem(
                code="SBOM_INCOMPLETE",
                what=f"the scanner did not find what is installed: {', '.join(missing)}",
                where=job.cell.id,
                fix="run `rocm-torch sbom --force` again, with fewer cells at a time",
            )
        )


def _complete(record: SbomRecord, folder: Path) -> bool:
    return all(
        (folder / name).is_file()
        and Digest.of((folder / name).read_bytes()) == record.documents.get(media_type)
        for media_type, name in FILES.items()
    )
