"""Opens registries with the credentials that Docker's configuration has for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.engines.registry import Registry, load_credentials
from builder.errors import CouldNotError, Problem
from builder.matrix.site import setting
from builder.oci import Reference

# What no answer at all is called: a mirror would help.
_UNREACHABLE = frozenset(
    {
        "REGISTRY_UNKNOWN_HOST",
        "REGISTRY_REFUSED_CONNECTION",
        "REGISTRY_NO_ANSWER",
        "REGISTRY_TLS",
    }
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.engines.process import Runner
    from builder.engines.registry import Credentials
    from builder.matrix.site import Site
    from builder.oci import Digest


def open_registry(host: str, *, runner: Runner, environ: Mapping[str, str]) -> Registry:
    """Return a client for ``host``; credentials are looked up when it first asks for them.

    Args:
        host: as in a reference, with its port.
        runner: starts credential helpers.
        environ: where ``DOCKER_CONFIG`` and ``HOME`` say the configuration lies.
    """

    def credentials() -> Credentials | None:
        return load_credentials(_docker_config(environ), host, runner)

    return Registry(host, credentials=credentials)


def base_digest(ref: str, site: Site, *, runner: Runner, environ: Mapping[str, str]) -> Digest:
    """Return the digest that the tag of a base has now in its registry, or in the site's mirror.

    Raises:
        CouldNotError: ``BASE_NOT_PUBLISHED``; or the registry could not be reached or asked, with
            the setting that would help.
    """
    served = site.base(ref)
    registry = open_registry(served.registry, runner=runner, environ=environ)
    try:
        found = registry.head(served.repository, served.tag or "latest")
    except CouldNotError as error:
        raise CouldNotError(_with_setting(problem, ref, site) for problem in error.problems) from (
            error
        )
    finally:
        registry.close()
    if found is None:
        raise CouldNotError(
            Problem(
                code="BASE_NOT_PUBLISHED",
                what=f"{served.registry} has no {served.repository}:{served.tag or 'latest'}",
                where=ref,
                fix="bring the image to the mirror, or mend `mirrors:` in the settings of the site"
                if served != Reference.parse(ref)
                else None,
            )
        )
    return found.digest


def _with_setting(problem: Problem, ref: str, site: Site) -> Problem:
    if problem.code not in _UNREACHABLE:
        return problem
    canonical, served = Reference.parse(ref), site.base(ref)
    if served == canonical:
        fix = setting("mirrors", canonical.registry)
    else:
        fix = f"check `mirrors:` in the settings of the site: {canonical.name} is {served.name}"
    return replace(problem, fix=fix)


def _docker_config(environ: Mapping[str, str]) -> dict[str, Any]:
    folder = environ.get("DOCKER_CONFIG")
    path = (Path(folder) if folder else Path(environ.get("HOME", "/")) / ".docker") / "config.json"
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CouldNotError(
            Problem(
                code="DOCKER_CONFIG_UNREADABLE",
                what=f"Docker's configuration cannot be read: {error}",
                where=str(path),
                fix="mend the file, or set DOCKER_CONFIG to another folder",
            )
        ) from error
    return found if isinstance(found, dict) else {}
