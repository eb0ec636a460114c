"""Opens registries with the credentials that Docker's configuration has for them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.engines.registry import Registry, load_credentials
from builder.errors import CouldNotError, Problem, RefusedError
from builder.matrix.nearest import nearest_tags
from builder.matrix.site import setting
from builder.oci import Descriptor, Reference

# What no answer at all is called: a mirror would help.
_UNREACHABLE = frozenset(
    {
        "REGISTRY_UNKNOWN_HOST",
        "REGISTRY_REFUSED_CONNECTION",
        "REGISTRY_NO_ANSWER",
        "REGISTRY_TLS",
    }
)

# Docker came out in 2013: an image that says an earlier day says nothing.
_FIRST_DAY = datetime(2013, 1, 1, tzinfo=UTC)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


@dataclass(frozen=True, slots=True)
class Bases:
    """Asks the registries of bases, or a site's mirrors of them.

    Attributes:
        site: what serves them here.
        runner: starts credential helpers.
        environ: where Docker's configuration lies.
        known: tags that the facts know of a repository, by its canonical name.
    """

    site: Site
    runner: Runner
    environ: Mapping[str, str]
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def digest(self, ref: str) -> Digest:
        """Return the digest that the tag of a base has now.

        Raises:
            RefusedError: ``BASE_TAG_NOT_FOUND``, with what there is: the registry answered, and
                asking again will not help.
            CouldNotError: the registry could not be reached or asked, with the setting that would
                help.
        """
        served = self.site.base(ref)
        with self._asking(ref) as registry:
            found = registry.head(served.repository, served.tag or "latest")
        if found is None:
            raise RefusedError(self._not_found(ref, served))
        return found.digest

    def created(self, ref: str, digest: Digest) -> datetime | None:
        """Return when the image ``digest`` of the base ``ref`` was made, where it says so.

        Raises:
            CouldNotError: the registry could not be reached or asked, or has no such image.
        """
        repository = self.site.base(ref).repository
        with self._asking(ref) as registry:
            manifest = json.loads(registry.get_manifest(repository, digest)[1])
            for one in manifest.get("manifests", ()):
                platform = one.get("platform") or {}
                if (platform.get("os"), platform.get("architecture")) == ("linux", "amd64"):
                    body = registry.get_manifest(repository, one["digest"])[1]
                    manifest = json.loads(body)
                    break
            if "config" not in manifest:
                return None
            config = Descriptor.from_json(manifest["config"])
            text = json.loads(b"".join(registry.get_blob(repository, config))).get("created")
        return _moment(text)

    @contextmanager
    def _asking(self, ref: str) -> Iterator[Registry]:
        served = self.site.base(ref)
        registry = open_registry(served.registry, runner=self.runner, environ=self.environ)
        try:
            yield registry
        except CouldNotError as error:
            told = [_with_setting(problem, ref, self.site) for problem in error.problems]
            raise CouldNotError(told) from error
        finally:
            registry.close()

    def _not_found(self, ref: str, served: Reference) -> Problem:
        canonical = Reference.parse(ref)
        tag = canonical.tag or "latest"
        near = nearest_tags(tag, self.known.get(canonical.name, ()))
        fixes = [f"take one that is published, such as {', '.join(near)}"] if near else []
        if served != canonical:
            fixes.append(
                "bring the image to the mirror, or mend `mirrors:` in the settings of the site"
            )
        return Problem(
            code="BASE_TAG_NOT_FOUND",
            what=f"{served.registry} has no {served.repository}:{tag}",
            where=ref,
            why="only some combinations are published, and a tag cannot be made up from its parts",
            fix="; ".join(fixes) or "check the name, and that the image is public",
        )


def _moment(text: object) -> datetime | None:
    """Read the time of an image; tools that make reproducible images leave it at a zero."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return found if found >= _FIRST_DAY else None


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
