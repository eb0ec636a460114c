"""Where a registry is, and to whom a secret may be sent."""

from __future__ import annotations

import ipaddress

import httpx

from builder.engines.registry.credentials import HUB

_HUB_API = "registry-1.docker.io"


def base_url(host: str, *, plain_http: bool) -> httpx.URL:
    """Return the address of a registry's API; Docker Hub has it on a host of its own."""
    scheme = "http" if plain_http else "https"
    return httpx.URL(f"{scheme}://{_HUB_API if host == HUB else host}")


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` (with or without a port) is this machine, where no TLS is needed."""
    name = httpx.URL(f"http://{host}").host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_safe(url: str) -> bool:
    """Tell whether a secret may be sent to ``url``: by TLS, or without leaving this machine."""
    parsed = httpx.URL(url)
    return parsed.scheme == "https" or is_loopback(parsed.netloc.decode("ascii"))


def same_place(url: httpx.URL, base: httpx.URL) -> bool:
    """Tell whether two addresses are of one server, which may get the same credentials."""
    return (url.scheme, url.host, url.port) == (base.scheme, base.host, base.port)
