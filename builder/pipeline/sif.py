"""Step sif: an image, known by its digest, to a SIF for Apptainer.

The digest comes from the build or is asked of the registry once; a tag is never converted, because
another leg of a pipeline may move it between the question and the answer.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.apptainer import Squash
from builder.engines.layout import Layout
from builder.errors import CouldNotError, Problem
from builder.host.limits import allowed_cores, allowed_memory
from builder.host.mounts import look_at
from builder.host.scratch import VARIABLES, choose, misnamed
from builder.oci import Digest, canonical_json
from builder.pipeline.fetch import check_whole
from builder.pipeline.run_lock import no_locks
from builder.pipeline.tool_places import converter
from builder.report.progress import Event, timed
from builder.report.records import SifRecord
from builder.report.sif_failures import conversion_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from builder.engines.apptainer import Apptainer
    from builder.engines.process import Stream
    from builder.host.mounts import Folder
    from builder.pipeline.session import Session

STEP = "sif"
IMAGE_LABEL = "io.rocm-torch.image"
CELL_LABEL = "io.rocm-torch.cell"
# Without a fact about the image: layers are packed to a third of their size or better.
_UNPACKED_TIMES = 4
_MOST_MEMORY = 8 << 30
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Conversion:
    """What to convert to what.

    Attributes:
        digest: of the image, which lies in the shared layout.
        output: the SIF; it appears whole or not at all.
        environ: the caller's, for the folders that it names.
    """

    digest: Digest
    output: Path
    environ: Mapping[str, str]


def default_output(session: Session, digest: Digest) -> Path:
    """Return where the SIF of an image goes where the caller does not say."""
    name = image_labels(session, digest).get(CELL_LABEL) or digest.hex[:12]
    return session.workspace.state / "sif" / f"{name}.sif"


def image_labels(session: Session, digest: Digest) -> dict[str, str]:
    """Return the labels of an image of the shared layout."""
    layout = Layout(session.workspace.layout)
    config = json.loads(layout.read_blob(layout.manifest(digest).config.digest))
    return dict(config.get("config", {}).get("Labels") or {})


def convert(session: Session, wanted: Conversion, *, force: bool = False) -> SifRecord:
    """Convert an image to a SIF unless that was done for its digest, and return the record.

    Raises:
        CouldNotError: ``SIF_TMP_TOO_SMALL``, ``SIF_BEING_MADE``, ``SIF_OOM``, ``SIF_DISK_FULL``,
            ``SIF_FAILED``; or no Apptainer is here and the tools image cannot be had.
        RefusedError: a blob of the image is damaged.
    """
    tools, records = session.tools, session.workspace.records
    cell = image_labels(session, wanted.digest).get(CELL_LABEL) or wanted.digest.hex[:12]
    record = records.read(SifRecord, cell, STEP)
    if record and not force and _holds(record, wanted):
        tools.progress.tell(Event(cell, STEP, "done", "current"))
        return record
    for hint in misnamed(wanted.environ):
        tools.progress.say(cell, STEP, f"warning: {hint}")
    scratch = _scratch(session, wanted)
    program = converter(session)
    with (
        timed(tools.progress, cell, STEP, tools.clock, f"converting {wanted.digest}") as seconds,
        folder_of_one(wanted.output, scratch) as (partial, temporary),
    ):
        layout = labelled_view(session, wanted.digest, temporary / "layout")
        # Unpacking keeps one core busy: the layers are hashed beside it.
        with ThreadPoolExecutor(1) as beside:
            whole = beside.submit(check_whole, session, wanted.digest)
            try:
                _build(session, program, cell, layout, partial, temporary)
            except CouldNotError:
                whole.result()  # a damaged layer is the better reason
                raise
            except BaseException:
                session.tools.stopping.set()  # ends the hashing too
                raise
            whole.result()
        file, size = digest_of(partial)
        partial.replace(wanted.output)
        record = SifRecord(
            cell=cell,
            step=STEP,
            finished=tools.now(),
            seconds=seconds(),
            digest=wanted.digest,
            path=str(wanted.output.absolute()),
            file=file,
            size=size,
            tool=f"apptainer {program.version()}",
        )
        records.write(record)
    return record


def labelled_view(session: Session, digest: Digest, into: Path) -> Path:
    """Make a layout of one image whose labels name the digest that it was made of.

    Layers are links to the shared ones; config and manifest are new, and a function of the digest.
    """
    shared = Layout(session.workspace.layout)
    manifest = shared.manifest(digest)
    config = json.loads(shared.read_blob(manifest.config.digest))
    inner = config.setdefault("config", {})
    inner["Labels"] = {**(inner.get("Labels") or {}), IMAGE_LABEL: str(digest)}
    view = Layout(into)
    blobs = into / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for layer in manifest.layers:
        link = blobs / layer.digest.hex
        if not link.is_symlink():
            link.symlink_to(shared.blob_path(layer.digest).resolve())
    view.write_image(canonical_json(config), manifest.layers)
    return into


def _holds(record: SifRecord, wanted: Conversion) -> bool:
    output = wanted.output.absolute()
    return (
        record.digest == wanted.digest
        and record.path == str(output)
        and output.is_file()
        and output.stat().st_size == record.size
        and digest_of(output)[0] == record.file
    )


def _scratch(session: Session, wanted: Conversion) -> Path:
    """Return the folder to unpack to, after a look at room, kind and rights."""
    mounts = Path("/proc/self/mounts").read_text("utf-8")
    found = choose(_folders(session, wanted, mounts), _unpacked(session, wanted), wanted.environ)
    if isinstance(found, Problem):
        raise CouldNotError(found)
    return found.path


def _folders(session: Session, wanted: Conversion, mounts: str) -> tuple[Folder, ...]:
    named = [(Path(path), name) for name in VARIABLES if (path := wanted.environ.get(name))]
    parent = wanted.output.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(wanted.output, error.strerror) from error
    others = [(path, None) for path in (parent, session.workspace.state, Path("/var/tmp"))]  # noqa: S108
    looked = (look_at(path, mounts, named=name) for path, name in (*named, *others))
    return tuple(folder for folder in looked if folder is not None)


def _unpacked(session: Session, wanted: Conversion) -> int:
    labels = image_labels(session, wanted.digest)
    for cell in session.matrix.cells:
        if cell.id == labels.get(CELL_LABEL) and cell.unpacked_bytes:
            return cell.unpacked_bytes
    return _UNPACKED_TIMES * Layout(session.workspace.layout).size(wanted.digest)


@contextmanager
def folder_of_one(output: Path, scratch: Path) -> Iterator[tuple[Path, Path]]:
    """Give the one conversion to ``output`` a partial file and a folder, both gone at the end.

    Their names begin with what follows from the output's, so that what a killed conversion left is
    found again; a lock tells it from one that runs. They end in chance: a converter that outlived
    its killed run goes on writing to names that are gone.
    """
    chance = secrets.token_hex(4)
    mark = hashlib.sha256(os.fsencode(output.absolute())).hexdigest()[:12]
    place = output.absolute().parent / f".{output.name}.converting"
    temporary = scratch / f".rocm-torch-sif-{mark}-{chance}"
    if output.is_dir():
        raise not_writable(output, "it is a folder")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(output, error.strerror) from error
    with (place / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CouldNotError(
                Problem(
                    code="SIF_BEING_MADE",
                    what="another conversion is making this file",
                    where=str(output),
                    fix="wait for it, or name another file with --output",
                )
            ) from error
        except OSError as error:
            raise no_locks(place, error) from error
        try:
            for old in (*scratch.glob(f".rocm-torch-sif-{mark}-*"), *place.glob("*.sif")):
                _remove_tree(old)
            temporary.mkdir()
            yield place / f"{chance}.sif", temporary
        finally:
            _remove_tree(temporary)
            _remove_tree(place)


def _remove_tree(folder: Path) -> None:
    """Remove what is there, folders without the right to write to them included."""
    if not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    for path, names, _ in os.walk(folder):
        for name in names:
            inner = Path(path, name)
            if not inner.is_symlink() and not os.access(inner, os.W_OK | os.X_OK):
                inner.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _build(
    session: Session,
    program: Apptainer,
    cell: str,
    layout: Path,
    partial: Path,
    temporary: Path,
) -> None:
    memory = allowed_memory(Path("/"))
    work = temporary / "work"
    work.mkdir()

    def heard(_: Stream, line: str) -> None:
        doing = line.removeprefix("INFO:").strip()
        session.tools.progress.tell(Event(cell, STEP, "doing", doing))

    squash = Squash(allowed_cores(), min(memory // 2, _MOST_MEMORY)) if program.can_tune() else None
    if squash is None:
        session.tools.progress.say(
            cell, STEP, f"{program.place.name} cannot tune mksquashfs: this takes longer"
        )
    done = program.build(
        layout,
        partial,
        temporary=work,
        squash=squash,
        read=(session.workspace.layout.resolve(),),
        on_line=heard,
    )
    log = session.workspace.log(cell, STEP)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout + done.stderr, "utf-8")
    if done.returncode != 0 or not partial.is_file():
        raise CouldNotError(
            conversion_problem(
                done.stderr,
                done.returncode,
                sif=str(partial),
                memory=memory,
                temporary=str(temporary),
            )
        )


def not_writable(output: Path, why: str | None) -> CouldNotError:
    """Return the failure of a SIF that cannot be written where it is to lie."""
    return CouldNotError(
        Problem(
            code="SIF_NOT_WRITABLE",
            what=f"the SIF cannot be written: {why}",
            where=str(output),
            fix="name another file with --output",
        )
    )


def digest_of(path: Path) -> tuple[Digest, int]:
    """Return the digest of a file's bytes, and its size."""
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256")
    return Digest(f"sha256:{found.hexdigest()}"), path.stat().st_size
