"""A cell to its build context: the Dockerfile and the files generated for it, as bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import meta

from builder.errors import Problem, RefusedError
from builder.matrix.versions import compare
from builder.oci import Digest
from builder.render import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.matrix.cells import Cell

CELL_SCHEMA = "rocm-torch/cell/v1"


class Renderer:
    """Renders cells with one set of templates.

    Args:
        templates: text by name, such as ``distro.Dockerfile.j2`` and ``macros/apt.j2``.
    """

    def __init__(self, templates: Mapping[str, str]) -> None:
        self._templates = dict(templates)
        self._sources: dict[str, dict[str, Digest]] = {}
        self._environment = jinja2.Environment(
            loader=jinja2.DictLoader(self._templates),
            undefined=jinja2.StrictUndefined,
            autoescape=False,  # noqa: S701 - Dockerfiles are not HTML; quote.py escapes by place
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        # Templates compare versions by these tests and never text by < and >.
        self._environment.tests.update(
            ver_ge=lambda one, other: compare(one, other) >= 0,
            ver_lt=lambda one, other: compare(one, other) < 0,
        )
        self._environment.filters.update(
            shell_word=quote.shell_word,
            docker_word=quote.docker_word,
            docker_key=quote.docker_key,
            image_reference=quote.image_reference,
            json_text=quote.json_text,
            comment=quote.comment,
            package=quote.package,
            file_name=quote.file_name,
            url=quote.url,
            https_url=quote.https_url,
            plain_word=quote.plain_word,
            fingerprint=quote.fingerprint,
        )

    def sources(self, cell: Cell) -> dict[str, Digest]:
        """Return the digest of each template that renders ``cell``, by name, imports included."""
        first = _template(cell)
        if first not in self._sources:
            self._sources[first] = self._followed(first)
        return self._sources[first]

    def _followed(self, first: str) -> dict[str, Digest]:
        found: dict[str, Digest] = {}
        todo = [first]
        while todo:
            name = todo.pop()
            if name in found or name not in self._templates:
                continue
            found[name] = Digest.of(self._templates[name].encode())
            parsed = self._environment.parse(self._templates[name])
            todo += [other for other in meta.find_referenced_templates(parsed) if other]
        return dict(sorted(found.items()))

    def render(self, cell: Cell, *, image: str) -> dict[str, bytes]:
        """Return the files of the context of ``cell`` by name; ``image`` is the repository.

        Raises:
            RefusedError: ``TEMPLATE_MISSING`` or ``TEMPLATE_FAILED``, with the template's name.
        """
        name = _template(cell)
        try:
            text = self._environment.get_template(name).render(
                cell=cell, image=image, labels=labels(cell, image=image)
            )
        except jinja2.TemplateNotFound as error:
            raise RefusedError(
                Problem(
                    code="TEMPLATE_MISSING",
                    what=f"there is no template {error.name}",
                    where=cell.id,
                    fix=f"write templates/{error.name}, or choose another base family",
                )
            ) from error
        except (jinja2.TemplateError, ValueError) as error:
            line = getattr(error, "lineno", None)
            raise RefusedError(
                Problem(
                    code="TEMPLATE_FAILED",
                    what=f"{cell.id} cannot be rendered: {error}",
                    where=f"templates/{name}" + (f":{line}" if line else ""),
                )
            ) from error
        return {
            "Dockerfile": text.encode(),
            "cell.json": (json.dumps(description(cell), indent=1, sort_keys=True) + "\n").encode(),
        }


def _template(cell: Cell) -> str:
    return f"{cell.base.family}.Dockerfile.j2"


def labels(cell: Cell, *, image: str) -> dict[str, str]:
    """Return the labels that are the same wherever the image is built.

    What only a build knows (base digest, inputs digest, creation time) comes with the bake file.
    """
    accelerator = f"ROCm {cell.rocm}" if cell.rocm else "CPU"
    values = {
        "org.opencontainers.image.title": f"{image} {cell.id}",
        "org.opencontainers.image.description": (
            f"PyTorch {cell.torch} for {accelerator} with Python {cell.python} on {cell.distro}"
        ),
        "org.opencontainers.image.base.name": cell.base.ref,
        "io.rocm-torch.cell": cell.id,
        "io.rocm-torch.lane": cell.lane,
        "io.rocm-torch.family": cell.base.family,
        "io.rocm-torch.flavour": cell.flavour,
        "io.rocm-torch.distro": cell.distro,
        "io.rocm-torch.rocm": cell.rocm or "",
        "io.rocm-torch.torch": cell.torch,
        "io.rocm-torch.python": cell.python,
        "io.rocm-torch.gfx": ",".join(cell.gfx),
    }
    return {key: value for key, value in values.items() if value}


def description(cell: Cell) -> dict[str, Any]:
    """Return what the image knows of itself: the JSON at ``/usr/share/rocm-torch/cell.json``."""
    expected = cell.expected
    return {
        "schema": CELL_SCHEMA,
        "id": cell.id,
        "distro": cell.distro,
        "rocm": cell.rocm,
        "torch": cell.torch,
        "python": cell.python,
        "flavour": cell.flavour,
        "family": cell.base.family,
        "gfx": list(cell.gfx),
        **({"peaks": {one.product: dict(one.tflops) for one in cell.peaks}} if cell.peaks else {}),
        "expected": {
            "torch_version": expected.torch_version,
            "backend": expected.backend,
            "hip_version": expected.hip_version,
            "contents": list(expected.contents),
            "pip_check_known": list(expected.pip_check_known),
        },
    }
