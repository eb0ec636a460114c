"""Adapter for the container engine: asks what it can do, loads images, runs containers, tags."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest, Mount
from requests.exceptions import ConnectionError as EngineConnectionError
from requests.exceptions import ReadTimeout, RequestException

from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from docker.models.containers import Container

    from builder.oci import Digest

_CALL_SECONDS = 600
# An engine says nothing while it unpacks or packs layers, for many minutes where they are large.
_SILENT_SECONDS = 3600
_STORE_LINE = '{"features": {"containerd-snapshotter": true}}'
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine says of itself; ``root`` is where it keeps images on its own machine."""

    version: str
    containerd_store: bool
    root: str
    operating_system: str


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One container to run to its end.

    Attributes:
        image: reference or id.
        command: words given to the entrypoint.
        cdi: names of devices in CDI specifications, such as ``amd.com/gpu=all``.
        devices: ``source:path:rwm`` mappings of device nodes.
        groups: GIDs that the process gets beside its own.
        timeout: seconds after which the container is killed.
        network: ``none`` unless the command needs one.
        read_only: mount the root file system read-only.
        user: ``uid[:gid]`` instead of the image's user.
        labels: to find the container by.
        shm_size: size of ``/dev/shm``, such as ``16g``; the engine's own by default.
        security: security options, such as ``label=disable``.
        userns: ``host`` to go without the engine's user namespace.
        mounts: source, path and whether it is read-only.
        environment: variables to set.
    """

    image: str
    command: tuple[str, ...]
    timeout: float
    devices: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    network: str = "none"
    read_only: bool = False
    user: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    cdi: tuple[str, ...] = ()
    shm_size: str | None = None
    security: tuple[str, ...] = ()
    userns: str | None = None
    mounts: tuple[tuple[str, str, bool], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a container ended."""

    exit_code: int
    stdout: str
    stderr: str


class DockerEngine:
    """One engine, reached as the docker CLI would reach it."""

    @cached_property
    def _client(self) -> docker.DockerClient:
        with _told("connect to the container engine"):
            return docker.from_env(timeout=_CALL_SECONDS)

    @cached_property
    def _patient(self) -> docker.DockerClient:
        """The client for calls in which the engine works without a word."""
        with _told("connect to the container engine"):
            return docker.from_env(timeout=_SILENT_SECONDS)

    def info(self) -> EngineInfo:
        """Ask the engine what it is.

        Raises:
            CouldNotError: ``ENGINE_UNREACHABLE``.
        """
        with _told("ask the container engine"):
            info = self._client.info()
        status = dict(info.get("DriverStatus") or ())
        return EngineInfo(
            version=str(info.get("ServerVersion", "")),
            containerd_store=status.get("driver-type", "").startswith("io.containerd.snapshotter"),
            root=str(info.get("DockerRootDir", "")),
            operating_system=str(info.get("OperatingSystem", "")),
        )

    def check(self) -> EngineInfo:
        """Return what the engine is, or refuse one that cannot export OCI layouts.

        Raises:
            CouldNotError: ``ENGINE_UNREACHABLE`` or ``ENGINE_UNFIT``.
        """
        info = self.info()
        if not info.containerd_store:
            raise CouldNotError(
                Problem(
                    code="ENGINE_UNFIT",
                    what=f"Docker {info.version} uses the classic image store, which cannot export"
                    " OCI layouts",
                    where="docker info: DriverStatus",
                    fix=f"put {_STORE_LINE} into /etc/docker/daemon.json and restart Docker",
                )
            )
        return info

    def has_image(self, reference: str) -> bool:
        """Tell whether the engine has ``reference`` (a tag, or a digest as id)."""
        with _told(f"look for {reference}"):
            try:
                self._client.images.get(reference)
            except ImageNotFound:
                return False
        return True

    def image_id(self, reference: str) -> str | None:
        """Return the id behind ``reference``: the manifest digest in a containerd store."""
        with _told(f"look for {reference}"):
            try:
                return self._client.images.get(reference).id
            except ImageNotFound:
                return None

    def inspected(self, reference: str) -> dict[str, Any] | None:
        """Return what the engine says of an image (``docker image inspect``), if it has it."""
        with _told(f"look at {reference}"):
            try:
                attributes: dict[str, Any] = self._client.images.get(reference).attrs
            except ImageNotFound:
                return None
        return attributes

    def tags(self, repository: str) -> dict[str, str]:
        """Return ids by full name of every tag in ``repository``, in one call."""
        with _told(f"list the images of {repository}"):
            images = self._client.api.images(name=repository)
        return {name: image["Id"] for image in images for name in image.get("RepoTags") or ()}

    def remove_leftovers(self, labels: Iterable[str]) -> int:
        """Remove containers that carry all of ``labels`` (``key=value``) and return how many."""
        with _told("remove containers of an earlier run"):
            found = self._client.containers.list(all=True, filters={"label": list(labels)})
            for container in found:
                with contextlib.suppress(NotFound):
                    container.remove(force=True)
        return len(found)

    def load(self, archive: Iterator[bytes], digest: Digest, name: str) -> None:
        """Load an OCI archive; afterwards ``name`` must be the image ``digest``.

        Raises:
            CouldNotError: ``LOAD_FAILED``.
        """
        with _told(f"load {name}"):
            api: Any = self._patient.api  # the call streams; its type stub knows files only
            for message in api.load_image(archive):
                if "error" in message:
                    raise CouldNotError(
                        Problem("LOAD_FAILED", f"the engine refused the image: {message['error']}")
                    )
        found = self.image_id(name)
        if found != digest:
            raise CouldNotError(
                Problem(
                    code="LOAD_FAILED",
                    what=f"after loading, {name} is {found} and not {digest}",
                    fix="use Docker with the containerd image store",
                )
            )

    def pull(self, name: str, digest: Digest) -> None:
        """Fetch an image by its digest; ``name`` is registry and repository.

        Raises:
            CouldNotError: ``PULL_FAILED``, or the engine could not be asked.
        """
        with _told(f"fetch {name}@{digest}"):
            found = self._patient.images.pull(name, tag=digest).id
        if found != digest:
            raise CouldNotError(
                Problem(
                    code="PULL_FAILED",
                    what=f"after fetching {name}@{digest} the engine has {found}",
                    fix="use Docker with the containerd image store",
                )
            )

    def tag(self, source: str, repository: str, tags: Iterable[str]) -> None:
        """Give the image ``source`` further tags in ``repository``."""
        with _told(f"tag {source}"):
            image = self._client.images.get(source)
            for tag in tags:
                image.tag(repository, tag)

    def remove_tag(self, reference: str) -> None:
        """Take a tag away; nothing happens where it is not there."""
        with _told(f"untag {reference}"), contextlib.suppress(ImageNotFound):
            self._client.images.remove(reference)

    def run(self, spec: RunSpec) -> RunResult:
        """Run a container to its end and remove it.

        Raises:
            CouldNotError: ``CONTAINER_NOT_STARTED``, or ``CONTAINER_TIMEOUT`` with its last lines.
        """
        with _told(f"run {spec.image}"):
            container = self._start(spec)
            try:
                exit_code = self._wait(container, spec)
                stdout = container.logs(stdout=True, stderr=False)
                stderr = container.logs(stdout=False, stderr=True)
            finally:
                with contextlib.suppress(NotFound):
                    container.remove(force=True, v=True)
        return RunResult(
            exit_code, stdout.decode(errors="replace"), stderr.decode(errors="replace")
        )

    def _start(self, spec: RunSpec) -> Container:
        try:
            return self._client.containers.run(
                spec.image,
                list(spec.command),
                detach=True,
                device_requests=_cdi(spec.cdi),
                devices=list(spec.devices),
                group_add=[str(gid) for gid in spec.groups],
                network_mode=spec.network,
                read_only=spec.read_only,
                user=spec.user,
                labels=dict(spec.labels),
                shm_size=spec.shm_size,
                security_opt=list(spec.security),
                userns_mode=spec.userns,
                mounts=[
                    Mount(path, source, type="bind", read_only=read_only)
                    for source, path, read_only in spec.mounts
                ],
                environment=dict(spec.environment),
            )
        except APIError as error:
            raise CouldNotError(
                Problem(
                    code="CONTAINER_NOT_STARTED",
                    what=f"the container could not be started: {error.explanation or error}",
                    where=spec.image,
                )
            ) from error

    def _wait(self, container: Container, spec: RunSpec) -> int:
        try:
            return int(container.wait(timeout=spec.timeout)["StatusCode"])
        except (ReadTimeout, EngineConnectionError) as error:
            ended = _ended(container)
            if ended is not None:
                return ended
            tail = container.logs(tail=10).decode(errors="replace")
            container.kill()
            raise CouldNotError(
                Problem(
                    code="CONTAINER_TIMEOUT",
                    what=f"{' '.join(spec.command)} did not end within {spec.timeout:.0f} s",
                    where=spec.image,
                    why=tail or None,
                )
            ) from error

    def start_service(self, image: str, name: str, **options: Any) -> None:
        """Start a detached container called ``name`` that outlives this program."""
        with _told(f"start {name}"):
            self._client.containers.run(image, name=name, detach=True, **options)

    def published_port(self, name: str, inner: str) -> int | None:
        """Return the host port behind ``inner`` (``5000/tcp``) of a running container, or None."""
        with _told(f"look for {name}"):
            try:
                container = self._client.containers.get(name)
            except NotFound:
                return None
            bindings = container.ports.get(inner) if container.status == "running" else None
        return int(bindings[0]["HostPort"]) if bindings else None

    def remove_service(self, name: str) -> bool:
        """Stop and remove the container called ``name`` and tell whether it was there."""
        with _told(f"remove {name}"):
            try:
                self._client.containers.get(name).remove(force=True)
            except NotFound:
                return False
        return True

    def remove_volume(self, name: str) -> None:
        """Remove a volume; nothing happens where it is not there."""
        with _told(f"remove volume {name}"), contextlib.suppress(NotFound):
            self._client.volumes.get(name).remove()


def _ended(container: Container) -> int | None:
    """Return the status of a container that has ended; a call that broke says nothing about it."""
    container.reload()
    state = container.attrs["State"]
    return int(state["ExitCode"]) if state["Status"] == "exited" else None


def _cdi(names: tuple[str, ...]) -> list[DeviceRequest]:
    return [DeviceRequest(driver="cdi", device_ids=list(names))] if names else []


@contextlib.contextmanager
def _told(doing: str) -> Iterator[None]:
    """Turn what the SDK raises into a problem that says what was being done."""
    try:
        yield
    except APIError as error:
        raise CouldNotError(
            Problem("ENGINE_REFUSED", f"could not {doing}: {error.explanation or error}")
        ) from error
    except (DockerException, RequestException) as error:
        raise CouldNotError(
            Problem(
                code="ENGINE_UNREACHABLE",
                what=f"could not {doing}: {error}",
                fix="start Docker, or set DOCKER_HOST; `make demo` installs an engine on Debian"
                " and Ubuntu",
            )
        ) from error
