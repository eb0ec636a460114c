"""Where torch and its kernel libraries lie, found without importing torch."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Iterator

from rocm_torch_selftest.arch.code_objects import UnreadableBundleError, bundle_targets
from rocm_torch_selftest.arch.targets import in_file_name

SYSTEM_FOLDERS = ("/opt/rocm/lib", "/opt/rocm/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")
BLAS_LIBRARIES = ("rocblas", "hipblaslt")
_VERSION_LINE = re.compile(r"^(hip|cuda|rocm|__version__)\b[^=\n]*=\s*(.+?)\s*$", re.MULTILINE)
_FOREIGN = re.compile(r"lib(?:rocblas|hipblas|hipsparse|rocsparse|rccl|MIOpen|roc|hip|rocm|amd)")


@dataclass(frozen=True)
class TorchFiles:
    """A torch package on disk.

    Attributes:
        folder: the directory of the package ``torch``.
        hip: version of HIP that it was built for, or None.
        cuda: version of CUDA that it was built for, or None.
        version: what ``torch.__version__`` says, or None.
    """

    folder: Path
    hip: str | None
    cuda: str | None
    version: str | None

    @property
    def backend(self) -> str:
        """Return ``hip``, ``cuda`` or ``cpu``."""
        if self.hip:
            return "hip"
        return "cuda" if self.cuda else "cpu"


def find_torch() -> TorchFiles | None:
    """Find the torch that ``import torch`` would take; None where there is none."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    return read_torch(Path(found.origin).parent)


def read_torch(folder: Path) -> TorchFiles:
    """Read the versions of a torch package from its ``version.py``."""
    try:
        text = (folder / "version.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    values = {name: _text(value) for name, value in _VERSION_LINE.findall(text)}
    return TorchFiles(folder, values.get("hip"), values.get("cuda"), values.get("__version__"))


def _text(value: str) -> str | None:
    return value.strip("'\"") if value[:1] in "'\"" and len(value) > 2 else None


@dataclass(frozen=True)
class Offer:
    """The targets that one library has kernels for.

    Attributes:
        library: ``torch``, ``rocblas`` or ``hipblaslt``.
        targets: sorted; empty where none were found.
        source: where they were read, or why they could not be.
    """

    library: str
    targets: tuple[str, ...]
    source: str


def torch_offer(torch: TorchFiles) -> Offer:
    """Read the targets of torch's own libraries from their code objects.

    Of the libraries in ``torch/lib`` only torch's own count: a wheel lays ROCm's beside them, and
    their kernels do not make torch's. Where the code lies in archives of its own (ROCm 7.14 and
    later), the names of these say the target.
    """
    libraries = sorted((torch.folder / "lib").glob("*.so*"))
    own = [file for file in libraries if file.name.startswith("libtorch")]
    others = [file for file in libraries if file not in own and not _FOREIGN.match(file.name)]
    unread = ""
    for group in (own, others):
        targets: set[str] = set()
        for file in group:
            try:
                targets.update(bundle_targets(file))
            except (UnreadableBundleError, OSError) as error:  # noqa: PERF203 - others may tell
                unread = f"{file.name}: {error}"
        if targets:
            return Offer("torch", tuple(sorted(targets)), "code objects in torch/lib")
    packed = _named(path for path in torch.folder.rglob("*.kpack"))
    packed |= _device_wheels(torch.folder.parent, "torch")
    if packed:
        return Offer("torch", tuple(sorted(packed)), "names of kernel archives")
    return Offer("torch", (), unread or "no code objects in torch/lib")


def blas_offers(torch: TorchFiles, system: Iterable[str] = SYSTEM_FOLDERS) -> tuple[Offer, ...]:
    """Read the targets of rocBLAS and hipBLASLt from the names of their kernel files.

    The copy beside torch is the one that torch loads; else one in a ROCm package of Python; else
    the system's.
    """
    return tuple(_blas_offer(name, torch, system) for name in BLAS_LIBRARIES)


def _blas_offer(name: str, torch: TorchFiles, system: Iterable[str]) -> Offer:
    for folder in _library_folders(torch, system):
        places = [folder / name / "library", *sorted((folder / name).glob("*/library"))]
        targets = _named(file for place in places if place.is_dir() for file in place.iterdir())
        if targets:
            return Offer(name, tuple(sorted(targets)), f"kernel files in {folder / name}")
    packages = torch.folder.parent
    packed = _named(
        file
        for package in sorted(packages.glob("_rocm_sdk*"))
        for file in package.rglob("*.kpack")
        if "blas" in file.name
    )
    if packed:
        return Offer(name, tuple(sorted(packed)), "names of kernel archives")
    return Offer(name, (), "no kernel files found")


def _library_folders(torch: TorchFiles, system: Iterable[str]) -> Iterator[Path]:
    yield torch.folder / "lib"
    for package in sorted(torch.folder.parent.glob("_rocm_sdk*")):
        yield package / "lib"
    for folder in system:
        yield Path(folder)


def _named(files: Iterable[Path]) -> set[str]:
    return {target for file in files for target in [in_file_name(file.name)] if target}


def _device_wheels(packages: Path, name: str) -> set[str]:
    """Return the targets of wheels that carry one target each: ``torch-device-gfx942``."""
    found = packages.glob(f"*{name}*device*gfx*.dist-info")
    return {
        target
        for file in found
        for target in [in_file_name(re.split(r"-\d", file.name, maxsplit=1)[0])]
        if target
    }
