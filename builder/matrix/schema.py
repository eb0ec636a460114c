"""The shape of matrix.yaml: pydantic models, the only definition of which keys exist."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from builder.matrix.requirements import pinned
from builder.matrix.versions import PYTHON_PATTERN, VERSION_PATTERN
from builder.oci import DEFAULT_REGISTRY, Reference

BASES = ("auto", "rocm-pytorch", "wheel", "amd-wheel", "rocm-dev", "distro")
LEVELS = ("smoke", "gpu", "bench")
FLAVOUR_PATTERN = r"^(runtime|devel|opencl|slim-gfx[0-9a-z]{1,8})$"
GFX_PATTERN = r"^gfx[0-9a-f]{3,5}$"
LANE_PATTERN = r"^[a-z][a-z0-9.-]{0,62}$"
RUNNER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
SIZE_PATTERN = r"^[0-9]{1,6}(\.[0-9]{1,3})? (MiB|GiB|MB|GB)$"
_UNITS = {"MiB": 2**20, "GiB": 2**30, "MB": 10**6, "GB": 10**9}
_REGISTRY = re.compile(r"localhost(:[0-9]{1,5})?|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_date(value: object) -> object:
    """Take a date only: pydantic would read the number 20 as a day in 1970."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        return value
    raise PydanticCustomError("not_a_date", "not a day", {"fix": 'Write "2027-01-31".'})


def _is_written(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("nothing_written", "nothing is written", {"fix": "Say it."})
    return value


def _is_pinned(value: str) -> str:
    if pinned(value) is None:
        fix = {"fix": 'Write one version: "numpy==2.3.4".'}
        raise PydanticCustomError("not_pinned", "not a pinned requirement", fix)
    return value


PinnedText = Annotated[str, Field(max_length=200), AfterValidator(_is_pinned)]
Words = Annotated[str, Field(max_length=2000), AfterValidator(_is_written)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
VersionText = Annotated[str, Field(pattern=VERSION_PATTERN)]
PythonText = Annotated[str, Field(pattern=PYTHON_PATTERN)]
FlavourText = Annotated[str, Field(pattern=FLAVOUR_PATTERN)]
GfxText = Annotated[str, Field(pattern=GFX_PATTERN)]
RunnerLabel = Annotated[str, Field(pattern=RUNNER_PATTERN)]
Level = Literal["smoke", "gpu", "bench"]
_LISTED = BeforeValidator(_as_list)
Values = Annotated[
    tuple[Name, ...],
    _LISTED,
    Field(min_length=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]


class Model(BaseModel):
    """Base of all parts of the file: unknown keys are errors and nothing changes once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WaiverSource(Model):
    """A written exception to the gate, with an end."""

    levels: Annotated[tuple[Level, ...], Field(min_length=1)]
    reason: Words
    until: Annotated[date, BeforeValidator(_as_date)]


class PolicySource(Model):
    """What a candidate of the lane must pass to get release tags."""

    levels: Annotated[
        tuple[Level, ...],
        Field(min_length=1, description="Levels of the self-test that must pass."),
    ] = ("smoke", "gpu")
    size_budget: Annotated[
        str | None,
        Field(
            pattern=SIZE_PATTERN,
            description='Largest size as it is pulled, e.g. "4 GiB".',
        ),
    ] = None
    waiver: WaiverSource | None = None
    signed: Annotated[
        StrictBool,
        Field(description="Whether image and evidence are signed with the key of `signing`."),
    ] = False

    @property
    def size_budget_bytes(self) -> int | None:
        """Return the budget in bytes."""
        if self.size_budget is None:
            return None
        number, unit = self.size_budget.split(" ")
        return int(float(number) * _UNITS[unit])


class PreferSource(Model):
    """Which value a moving tag takes where cells are equally new; the first is preferred."""

    distro: tuple[Name, ...] = ()
    python: tuple[PythonText, ...] = ()


class AxesSource(Model):
    """Values of some axes; an axis that is not named stands for all values of the lane."""

    distro: Values | None = None
    rocm: Values | None = None
    torch: Values | None = None
    python: Values | None = None
    flavour: Values | None = None


class IncludeSource(AxesSource):
    """Adds the combinations of these values with those of the lane for the other axes."""

    rocm: Annotated[tuple[VersionText, ...], _LISTED] | None = None
    torch: Annotated[tuple[VersionText, ...], _LISTED] | None = None
    python: Annotated[tuple[PythonText, ...], _LISTED] | None = None
    flavour: Annotated[tuple[FlavourText, ...], _LISTED] | None = None


class ExcludeSource(AxesSource):
    """Drops the combinations that match every axis named here, included ones as well."""

    reason: Words


class LaneSource(Model):
    """One product of axis values with a purpose, a base family and a policy."""

    purpose: Annotated[Words, Field(description="Whom these images are for.")]
    base: Annotated[
        Literal["auto", "rocm-pytorch", "wheel", "amd-wheel", "rocm-dev", "distro"],
        Field(description="The base family: where ROCm and torch come from."),
    ] = "auto"
    default: Annotated[
        StrictBool, Field(description="Whether the widest tags come from this lane.")
    ] = False
    distro: Annotated[tuple[Name, ...], Field(min_length=1)]
    rocm: Annotated[
        tuple[VersionText, ...], Field(description="Absent for the family `distro` (the CPU).")
    ] = ()
    torch: Annotated[tuple[VersionText, ...], Field(min_length=1)]
    python: Annotated[tuple[PythonText, ...], Field(min_length=1)]
    flavour: Annotated[tuple[FlavourText, ...], Field(min_length=1)] = ("runtime",)
    gfx: Annotated[
        tuple[GfxText, ...], Field(description="GPU targets that the lane is meant for.")
    ] = ()
    policy: PolicySource = PolicySource()
    prefer: PreferSource = PreferSource()
    python_packages: Annotated[
        tuple[PinnedText, ...],
        Field(description='Further Python packages of wheel images, pinned: "numpy==2.3.4".'),
    ] = ()
    include: tuple[IncludeSource, ...] = ()
    exclude: tuple[ExcludeSource, ...] = ()


class CiSource(Model):
    """What a generated CI pipeline has to know of the machines."""

    build_runner: Annotated[
        tuple[RunnerLabel, ...],
        Field(min_length=1, description="Labels of the machines that build; they need no GPU."),
    ] = ("ubuntu-24.04",)
    runners: Annotated[
        dict[GfxText, Annotated[tuple[RunnerLabel, ...], Field(min_length=1)]],
        Field(description="Labels of the machines with a GPU, by GPU target."),
    ] = {}
    chunk: Annotated[
        int, Field(strict=True, ge=1, le=256, description="Cells a chunk of the pipeline.")
    ] = 200


class SigningSource(Model):
    """The key that images are signed with; the private half is named where they are published."""

    public_key: Annotated[
        str,
        Field(min_length=1, max_length=400, description="PEM file, from this file's folder."),
    ]


class MatrixSource(Model):
    """The whole file."""

    version: Annotated[Literal[1], Field(description="The version of this format.")]
    image: Annotated[str, Field(description="The repository of all images.", max_length=200)]
    registry: Annotated[str, Field(description="Where images are published.")] = DEFAULT_REGISTRY
    lanes: Annotated[
        dict[Annotated[str, Field(pattern=LANE_PATTERN)], LaneSource], Field(min_length=1)
    ]
    ci: CiSource = CiSource()
    signing: SigningSource | None = None

    @model_validator(mode="after")
    def _names_a_repository(self) -> MatrixSource:
        text = f"{self.registry}/{self.image}"
        fix = "Write `image: ourorg/rocm-torch` and `registry: docker.io`, without a tag."
        try:
            reference = Reference.parse(text)
        except ValueError:
            reference = None
        if (
            reference is None
            or not _REGISTRY.fullmatch(self.registry)
            or (reference.registry, reference.tag, reference.digest) != (self.registry, None, None)
        ):
            raise PydanticCustomError("repository", "not an image repository", {"fix": fix})
        return self


AXES = ("distro", "rocm", "torch", "python", "flavour")


def matrix_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of matrix.yaml, for editors and other programs."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "matrix.yaml of rocm-torch",
        **{
            key: value
            for key, value in MatrixSource.model_json_schema().items()
            if key not in {"title", "$schema"}
        },
    }
