"""Settings of a site: where registries, package archives and indexes are really asked there.

They never reach an image: FROM, sources lists, labels and the inputs digest keep the canonical
names, so that a context is the same at every site and equal content gives equal digests.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from builder.errors import Problem, RefusedError
from builder.matrix.problems import near, problem_of
from builder.matrix.schema import Model
from builder.matrix.source import decode, read_document
from builder.oci import Reference

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from builder.facts import Distribution
    from builder.facts.distributions import PackageManager
    from builder.matrix.cells import Repository
    from builder.matrix.document import Document

NAME = "site.yaml"
# Families whose torch comes as a wheel: the ones that indexes and a wheelhouse are for.
WHEEL_FAMILIES = frozenset({"wheel", "amd-wheel", "rocm-dev"})

# Distributions whose image has its archives in /etc/apt/sources.list: as macros/apt.j2 has them.
_ONE_LINE_LISTS = frozenset({("ubuntu", "22.04")})

_URL = re.compile(r"https?://[^\s/@\[\]\"'\\]+(/[^\s\[\]\"'\\]*)?")
_LOGIN = re.compile(r"[a-z]+://[^/\s]*@")
_PLACE = re.compile(r"[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*")


def _url(value: str) -> str:
    if _LOGIN.match(value):
        fix = "Leave name and password out; a mirror that needs a login cannot be used yet."
        raise PydanticCustomError("login", "it holds a login", {"fix": fix})
    if not _URL.fullmatch(value):
        fix = 'Write "http://HOST/PATH" or "https://HOST/PATH".'
        raise PydanticCustomError("url", "not the address of a server", {"fix": fix})
    return value.rstrip("/")


def _registry(value: str) -> str:
    host = value.partition("/")[0]
    if not _PLACE.fullmatch(value) or not ("." in host or ":" in host or host == "localhost"):
        fix = 'Write "HOST[:PORT][/PREFIX]" without https:// and without a tag.'
        raise PydanticCustomError("registry", "not a registry", {"fix": fix})
    return value


def _file_or_url(value: str) -> str:
    if value.startswith("/") and not re.search(r"\s", value):
        return value
    try:
        return _url(value)
    except PydanticCustomError as error:
        fix = 'Write the absolute path of a file, or "https://HOST/PATH".'
        raise PydanticCustomError("file_or_url", "neither file nor URL", {"fix": fix}) from error


Url = Annotated[str, Field(max_length=500), AfterValidator(_url)]
Registry = Annotated[str, Field(max_length=255), AfterValidator(_registry)]
FileOrUrl = Annotated[str, Field(max_length=500), AfterValidator(_file_or_url)]


class Site(Model):
    """The whole file. Each mapping goes from a canonical name to what serves it at this site."""

    mirrors: dict[Registry, Registry] = Field(
        default_factory=dict, description="Registries that bases come from."
    )
    packages: dict[Url, Url] = Field(default_factory=dict, description="Package archives.")
    indexes: dict[Url, Url] = Field(default_factory=dict, description="Indexes of Python wheels.")
    keys: dict[Url, FileOrUrl] = Field(default_factory=dict, description="Keys that sign packages.")
    python: Url | None = Field(default=None, description="Where uv gets Python builds.")

    def base(self, ref: str) -> Reference:
        """Return where the image that stands in FROM as ``ref`` is asked for here."""
        reference = Reference.parse(ref)
        found = _longest(self.mirrors, reference.name)
        if found is None:
            return reference
        rest = reference.name[len(found) :]
        host, _, repository = (self.mirrors[found] + rest).partition("/")
        return Reference(host, repository or reference.repository, reference.tag, reference.digest)

    def package_url(self, url: str) -> str:
        """Return the address that serves ``url``, an archive or a file of one, at this site."""
        found = _longest(self.packages, url)
        return url if found is None else self.packages[found] + url[len(found) :]

    def index_url(self, url: str) -> str:
        """Return the address that serves ``url``, an index or a file of one, at this site."""
        found = _longest(self.indexes, url)
        return url if found is None else self.indexes[found] + url[len(found) :]

    def canonical_index_url(self, url: str) -> str | None:
        """Return what ``url`` is a copy of; None where no index of this site lies above it."""
        served = {there: canonical for canonical, there in self.indexes.items()}
        found = _longest(served, url)
        return None if found is None else served[found] + url[len(found) :]

    def apt_sources(self, distribution: Distribution) -> str | None:
        """Return the sources list for builds here; None where the image's own will do.

        In the form (deb822, or one line an entry) of the file that it stands in for, because apt
        tells the forms apart by the file's name.
        Suites, components and keyring are the image's own: a mirror serves the same packages.
        """
        if all(self.package_url(archive.uri) == archive.uri for archive in distribution.archives):
            return None
        if (distribution.os_id, distribution.version_id) in _ONE_LINE_LISTS:
            return "".join(
                f"deb [signed-by={archive.keyring}] {self.package_url(archive.uri)} {suite} "
                f"{' '.join(archive.components)}\n"
                for archive in distribution.archives
                for suite in archive.suites
            )
        return "\n".join(
            f"Types: deb\nURIs: {self.package_url(archive.uri)}\n"
            f"Suites: {' '.join(archive.suites)}\nComponents: {' '.join(archive.components)}\n"
            f"Signed-By: {archive.keyring}\n"
            for archive in distribution.archives
        )

    def repository_file(self, repository: Repository, manager: PackageManager) -> str | None:
        """Return the file of a repository that an image adds, for builds here.

        None where the site has no mirror of it. As macros/apt.j2 and macros/dnf.j2 write it, but
        for the address.
        """
        served = self.package_url(repository.uri)
        if served == repository.uri:
            return None
        if manager == "apt":
            components = " ".join(repository.components)
            return (
                f"Types: deb\nURIs: {served}\nSuites: {' '.join(repository.suites)}\n"
                + (f"Components: {components}\n" if components else "")
                + f"Architectures: amd64\nSigned-By: /etc/apt/keyrings/{repository.name}.asc\n"
            )
        return (
            f"[{repository.name}]\nname={repository.name}\nbaseurl={served}\nenabled=1\n"
            f"priority=50\ngpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/{repository.name}.asc\n"
        )


def load_site(text: str | bytes, name: str) -> Site:
    """Read the settings of a site.

    Args:
        text: the content of the file; bytes must be UTF-8. Nothing but comments is no settings.
        name: what problems call the file.

    Raises:
        RefusedError: every problem found, by line.
    """
    try:
        document, problems = read_document(
            text if isinstance(text, str) else decode(text, name), name
        )
    except RefusedError as error:
        if error.problems[0].code == "EMPTY_FILE":
            return Site()
        raise
    site = Site()
    try:
        site = Site.model_validate(document.data)
    except ValidationError as error:
        problems += [_told(item, document) for item in error.errors(include_url=False)]
    if problems:
        raise RefusedError(dict.fromkeys(problems))
    return site


def read_site(path: Path, name: str) -> Site:
    """Read the file at ``path``; ``RefusedError`` where it is not there or not right."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RefusedError(
            Problem(
                code="NO_SITE",
                what=f"the settings of the site cannot be read: {error.strerror}",
                where=name,
                fix="name a file that is there with --site, or leave the option out",
            )
        ) from None
    return load_site(content, name)


def setting(section: str, key: str) -> str:
    """Say in a fix which line of the site's settings would help."""
    return f'in {NAME}, set `{section}: {{"{key}": ...}}` to what serves it at your site'


def _longest(table: dict[str, str], name: str) -> str | None:
    """Return the longest key that is ``name`` or a folder above it."""
    found = [key for key in table if name == key or name.startswith(f"{key}/")]
    return max(found, key=len, default=None)


def _told(error: ErrorDetails, document: Document) -> Problem:
    path: tuple[Any, ...] = tuple(part for part in error["loc"] if part != "[key]")
    if error["type"] == "login":  # neither the value nor the key is shown: it holds a secret
        return Problem(
            "LOGIN_IN_SETTINGS",
            f"An address under `{path[0]}` holds a login.",
            where=document.where(path),
            fix="Leave name and password out; a registry's login belongs to `docker login`.",
        )
    if error["type"] == "extra_forbidden":
        return Problem(
            "UNKNOWN_KEY",
            f'The key "{path[-1]}" is not known.',
            where=document.where(path),
            fix=near(str(path[-1]), Site.model_fields),
        )
    if not path:
        return Problem(
            "WRONG_TYPE",
            "The file holds no mapping.",
            where=document.where(path),
            fix='Write sections such as `mirrors: {"docker.io": "registry.site:5000/hub"}`.',
        )
    problem = problem_of(error, document)
    if error["type"] == "string_type":
        return replace(problem, code="WRONG_TYPE", fix='Write an address in quotes: "http://...".')
    return problem
