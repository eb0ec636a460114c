"""Answers a registry's challenge: Basic, or a Bearer token for just the rights that are needed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from builder.engines.registry.credentials import Credentials
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from builder.engines.registry.messages import Answer

CredentialSource = Callable[[], Credentials | None]

_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))')
_LIFE = 60.0  # seconds that a token lives where the service does not say (token specification)
_EARLY = 10.0


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a 401 asks for: the scheme in lower case and its parameters."""

    scheme: str
    parameters: dict[str, str]

    @classmethod
    def parse(cls, header: str) -> Challenge:
        """Read a ``WWW-Authenticate`` header."""
        scheme, _, rest = header.strip().partition(" ")
        found = {name.lower(): a or b for name, a, b in _PARAMETER.findall(rest)}
        return cls(scheme.lower(), found)


class Authenticator:
    """Keeps what one registry has asked for, and the tokens that it gave, by scope.

    Nothing is sent before it is asked for; a name and secret never go over plain http to another
    machine. Credentials are looked up at the first challenge: a helper that is not there hurts
    nobody whose registry asks for none.
    """

    def __init__(
        self,
        host: str,
        *,
        safe: Callable[[str], bool],
        credentials: Credentials | CredentialSource | None,
        clock: Callable[[], float],
        fetch: Callable[[str, str, dict[str, str], bytes | None], Answer],
    ) -> None:
        self._host = host
        self._safe = safe
        self._source = credentials
        self._clock = clock
        self._fetch = fetch
        self._challenge: Challenge | None = None
        self._tokens: dict[tuple[str, ...], tuple[str, float]] = {}

    def header(self, url: str, scopes: tuple[str, ...]) -> str | None:
        """Return the ``Authorization`` for a call, where the registry is known to want one."""
        if self._challenge is None:
            return None
        if self._challenge.scheme == "basic":
            known = self._credentials(url)
            return known.basic if known else None
        token, until = self._tokens.get(scopes, ("", 0.0))
        if self._clock() >= until:
            token = self._new_token(self._challenge, scopes)
        return f"Bearer {token}" if token else None

    def challenged(self, header: str, scopes: tuple[str, ...], *, sent: bool) -> bool:
        """Take note of a 401 and tell whether to ask again with what it wants.

        Args:
            header: ``WWW-Authenticate`` of the answer.
            scopes: of the call.
            sent: whether the call that was refused had an ``Authorization``.
        """
        challenge = Challenge.parse(header)
        if challenge.scheme == "bearer" and challenge.parameters.get("realm"):
            self._challenge = challenge
            self._tokens.pop(scopes, None)
            return True
        if challenge.scheme == "basic":
            self._challenge = challenge
            return not sent and self._source is not None
        return False

    def _credentials(self, url: str) -> Credentials | None:
        if self._source is None:
            return None
        if not isinstance(self._source, Credentials):
            self._source = self._source()
        if self._source is not None and not self._safe(url):
            raise CouldNotError(
                Problem(
                    code="CREDENTIALS_OVER_PLAIN_HTTP",
                    what=f"{self._host} asks for a login over plain http, and none was sent",
                    where=str(httpx.URL(url).copy_with(query=None)),
                    why="anyone on the way could read it",
                    fix=f"use TLS for {self._host}, or a registry that needs no login",
                )
            )
        return self._source

    def _new_token(self, challenge: Challenge, scopes: tuple[str, ...]) -> str:
        realm = challenge.parameters["realm"]
        known = self._credentials(realm)
        service = challenge.parameters.get("service", "")
        wanted = scopes or tuple(challenge.parameters.get("scope", "").split())
        if known is not None and known.identity_token:
            form = httpx.QueryParams(
                grant_type="refresh_token",
                refresh_token=known.secret,
                client_id="rocm-torch",
                service=service,
                scope=" ".join(wanted),
            )
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._fetch("POST", realm, headers, str(form).encode())
        else:
            query = [("service", service)] if service else []
            url = httpx.URL(realm)
            params = httpx.QueryParams([*url.params.multi_items(), *query])
            for scope in wanted:
                params = params.add("scope", scope)
            headers = {"Authorization": known.basic} if known else {}
            answer = self._fetch("GET", str(url.copy_with(params=params)), headers, None)
        return self._keep(answer, scopes)

    def _keep(self, answer: Answer, scopes: tuple[str, ...]) -> str:
        # As in the helper's case, a decoder's error would carry the token: it is not chained.
        try:
            value = json.loads(answer.body)
            token = str(value.get("token") or value["access_token"])
            life = float(value.get("expires_in") or _LIFE)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CouldNotError(
                Problem(
                    code="REGISTRY_TOKEN",
                    what=f"the token service of {self._host} gave an answer without a token",
                    where=answer.url,
                )
            ) from None
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise CouldNotError(
                Problem(
                    code="REGISTRY_TOKEN",
                    what=f"the token service of {self._host} gave a token that is no header value",
                    where=answer.url,
                )
            )
        self._tokens[scopes] = (token, self._clock() + max(life - _EARLY, _EARLY))
        return token
