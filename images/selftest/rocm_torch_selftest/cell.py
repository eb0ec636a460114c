"""What the image promises about itself: the cell file that the builder writes into it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping

CELL_SCHEMA = "rocm-torch/cell/v1"
CELL_FILE = Path("/usr/share/rocm-torch/cell.json")
CELL_FILE_VARIABLE = "ROCM_TORCH_CELL_FILE"
BACKENDS = ("cpu", "hip", "cuda")


class CellFileError(Exception):
    """The cell file cannot be used; testing without it would test less than was asked."""


@dataclass(frozen=True)
class Cell:
    """The facts of a cell that checks compare with.

    Attributes:
        id: the cell's id.
        python: version of the default Python, two components, ``3.13`` or ``3.13t``.
        torch_version: what ``torch.__version__`` must be.
        backend: ``cpu``, ``hip`` or ``cuda``.
        hip_version: what ``torch.version.hip`` must be; None where there is no such fact.
        contents: components that the image must contain.
        pip_check_known: findings of ``pip check`` that the base itself has.
        peaks: dense peaks in TFLOP/s by dtype, by name or PCI id of a product; may be empty.
        gfx: GPU targets that the image is meant for; what is compiled in it is for these.
    """

    id: str
    python: str
    torch_version: str
    backend: str
    hip_version: str | None
    contents: tuple[str, ...]
    pip_check_known: tuple[str, ...]
    peaks: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    gfx: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Cell:
        """Build the cell from the parsed file; raise CellFileError that names a wrong key."""
        if document.get("schema") != CELL_SCHEMA:
            raise CellFileError(f"its schema is {document.get('schema')!r}, not {CELL_SCHEMA!r}")
        expected = document.get("expected")
        if not isinstance(expected, dict):
            raise CellFileError("the key 'expected' is missing or not an object")
        hip = expected.get("hip_version")
        if hip is not None and not isinstance(hip, str):
            raise CellFileError(f"'expected.hip_version' is {hip!r}, not a string or null")
        backend = _text(expected, "backend")
        if backend not in BACKENDS:
            raise CellFileError(f"'expected.backend' is {backend!r}, not one of {BACKENDS}")
        return cls(
            id=_text(document, "id"),
            python=_text(document, "python"),
            torch_version=_text(expected, "torch_version"),
            backend=backend,
            hip_version=hip,
            contents=_texts(expected, "contents"),
            pip_check_known=_texts(expected, "pip_check_known"),
            peaks=_peaks(document),
            gfx=_texts(document, "gfx") if "gfx" in document else (),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``from_json`` reads, for the way into a child process."""
        return {
            "schema": CELL_SCHEMA,
            "id": self.id,
            "python": self.python,
            "gfx": list(self.gfx),
            "expected": {
                "torch_version": self.torch_version,
                "backend": self.backend,
                "hip_version": self.hip_version,
                "contents": list(self.contents),
                "pip_check_known": list(self.pip_check_known),
            },
            "peaks": {product: dict(by_dtype) for product, by_dtype in self.peaks.items()},
        }


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise CellFileError(f"the key {key!r} is {value!r}, not a non-empty string")
    return value


def _texts(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CellFileError(f"the key {key!r} is {value!r}, not a list of strings")
    return tuple(value)


def _peaks(document: Mapping[str, Any]) -> Mapping[str, Mapping[str, float]]:
    value = document.get("peaks", {})
    if not isinstance(value, dict) or not all(
        isinstance(row, dict) and all(isinstance(one, (int, float)) for one in row.values())
        for row in value.values()
    ):
        raise CellFileError(f"the key 'peaks' is {value!r}, not numbers by dtype by product")
    return value


def read_cell(path: Path | None, environment: Mapping[str, str]) -> Cell | None:
    """Read the cell file.

    Args:
        path: the file that was asked for, or None.
        environment: environment variables; ``ROCM_TORCH_CELL_FILE`` names the file as well.

    Returns:
        The cell, or None where no file was asked for and none lies at its usual place: this is
        not one of our images.

    Raises:
        CellFileError: a file that was asked for is not there, or a file cannot be read.
    """
    asked = path
    if asked is None and environment.get(CELL_FILE_VARIABLE):
        asked = Path(environment[CELL_FILE_VARIABLE])
    source = asked or CELL_FILE
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise CellFileError("it is not a JSON object")
        return Cell.from_json(document)
    except FileNotFoundError as error:
        if asked is None:
            return None
        raise CellFileError(f"the cell file {source} does not exist") from error
    except (OSError, ValueError) as error:
        raise CellFileError(f"the cell file {source} cannot be read: {error}") from error
    except CellFileError as error:
        raise CellFileError(f"the cell file {source} is not usable: {error}") from error
