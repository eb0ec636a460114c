from __future__ import annotations

import base64
import json
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import httpx
import pytest
from registry_server import FakeRegistry, Handler, serving

from builder.engines.registry import Credentials, Registry, is_loopback
from builder.errors import CouldNotError, RocmTorchError
from builder.oci import CONFIG, MANIFEST, Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = "s3cr3t-of-the-test"  # noqa: S105
ALICE = Credentials("alice", SECRET)
BASIC = "Basic " + base64.b64encode(f"alice:{SECRET}".encode()).decode()
BODY = b'{"schemaVersion":2}'
BLOB = Descriptor.of(b"blob", CONFIG)


class TokenGuard:
    """Lets in who has a token that the service gave for what is asked."""

    def __init__(self, server: FakeRegistry) -> None:
        self.server = server
        self.valid: set[str] = set()
        self.asked: list[tuple[str | None, list[str]]] = []
        self.life = 300

    def __call__(self, handler: Handler) -> bool:
        if handler.route == "/token":
            form = handler.query if handler.command == "GET" else parse_qs(handler.read().decode())
            self.asked.append((handler.headers.get("Authorization"), form.get("scope", [])))
            token = f"token-{len(self.asked)}"
            self.valid.add(token)
            body = {"token": token, "expires_in": self.life}
            handler.reply(200, json.dumps(body).encode())
            return True
        if handler.headers.get("Authorization", "").removeprefix("Bearer ") in self.valid:
            return False
        handler.read()
        realm = f'Bearer realm="http://{self.server.host}/token",service="reg",scope="a:b:pull"'
        handler.reply(401, WWW_Authenticate=realm)
        return True


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        registry.store("o/r", "cpu", MANIFEST, BODY)
        yield registry


@pytest.fixture
def guard(server: FakeRegistry) -> TokenGuard:
    server.before = guard = TokenGuard(server)
    return guard


def test_a_token_is_asked_for_once_a_scope(server: FakeRegistry, guard: TokenGuard) -> None:
    with Registry(server.host, credentials=ALICE) as client:
        client.head("o/r", "cpu")
        client.head("o/r", "cpu")
        client.push_blob("o/r", BLOB, b"blob")
    assert guard.asked == [
        (BASIC, ["repository:o/r:pull"]),
        (BASIC, ["repository:o/r:pull,push"]),
    ]


def test_an_anonymous_token_needs_no_credentials(server: FakeRegistry, guard: TokenGuard) -> None:
    with Registry(server.host) as client:
        client.ping()
        client.head("o/r", "cpu")
    assert [name for name, _ in guard.asked] == [None, None]


def test_a_token_that_is_no_longer_taken_is_renewed_once(
    server: FakeRegistry, guard: TokenGuard
) -> None:
    with Registry(server.host, credentials=ALICE) as client:
        client.head("o/r", "cpu")
        guard.valid.clear()
        client.head("o/r", "cpu")
        assert len(guard.asked) == 2


def test_a_token_that_ran_out_is_renewed_before_it_is_refused(
    server: FakeRegistry, guard: TokenGuard
) -> None:
    now = [1000.0]
    with Registry(server.host, credentials=ALICE, clock=lambda: now[0]) as client:
        client.head("o/r", "cpu")
        now[0] += 295
        client.head("o/r", "cpu")
    assert len(guard.asked) == 2
    assert len(server.calls) == 5  # 401, token, head; token, head


def test_a_login_that_is_not_enough_says_to_log_in(server: FakeRegistry) -> None:
    def deny(handler: Handler) -> bool:
        handler.reply(401, WWW_Authenticate='Basic realm="r"')
        return True

    server.before = deny
    with (
        Registry(server.host, credentials=ALICE) as client,
        pytest.raises(CouldNotError, match=f"docker login {server.host}") as caught,
    ):
        client.head("o/r", "cpu")
    assert len(server.calls) == 2
    assert SECRET not in str(caught.value)


def test_basic_credentials_are_sent_only_after_they_are_asked_for(server: FakeRegistry) -> None:
    def basic(handler: Handler) -> bool:
        if handler.headers.get("Authorization") == BASIC:
            return False
        handler.reply(401, WWW_Authenticate='Basic realm="r"')
        return True

    server.before = basic
    with Registry(server.host, credentials=lambda: ALICE) as client:
        client.head("o/r", "cpu")
        client.head("o/r", "cpu")
    assert ["Authorization" in headers for headers in server.headers] == [False, True, True]


def test_calls_that_are_refused_at_the_same_time_all_ask_again_with_the_login(
    server: FakeRegistry,
) -> None:
    together = threading.Barrier(4, timeout=30)

    def basic(handler: Handler) -> bool:
        if handler.headers.get("Authorization") == BASIC:
            return False
        together.wait()
        handler.reply(401, WWW_Authenticate='Basic realm="r"')
        return True

    server.before = basic
    with (
        Registry(server.host, credentials=ALICE) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        found = list(pool.map(lambda tag: client.head("o/r", tag), ("a", "b", "c", "d")))
    assert found == [None] * 4


def test_an_identity_token_is_exchanged_in_a_form(server: FakeRegistry, guard: TokenGuard) -> None:
    identity = Credentials("<token>", SECRET, identity_token=True)
    with Registry(server.host, credentials=identity) as client:
        client.head("o/r", "cpu")
    assert server.count("POST", "/token") == 1
    assert all(SECRET not in path for _, path in server.calls)


def test_credentials_are_not_looked_up_where_nobody_asks(server: FakeRegistry) -> None:
    def absent() -> Credentials:
        raise AssertionError("looked up")

    with Registry(server.host, credentials=absent) as client:
        client.head("o/r", "cpu")


def test_a_redirect_to_another_host_gets_no_credentials(
    server: FakeRegistry, guard: TokenGuard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    with serving(FakeRegistry()) as store:
        store.blobs["o/r", BLOB.digest] = b"blob"

        def redirect(handler: Handler) -> bool:
            if guard(handler):
                return True
            where = f"http://{store.host}/v2/o/r/blobs/{BLOB.digest}?signature={SECRET}"
            handler.reply(307, Location=where)
            return True

        server.before = redirect
        with Registry(server.host, credentials=ALICE) as client:
            assert b"".join(client.get_blob("o/r", BLOB)) == b"blob"
        assert "Authorization" in server.headers[-1]
        assert "Authorization" not in store.headers[0]
    assert SECRET not in caplog.text


def mocked(handle: Callable[[httpx.Request], httpx.Response], host: str, **rest: bool) -> Registry:
    return Registry(
        host,
        credentials=ALICE,
        transport=httpx.MockTransport(handle),
        sleep=lambda _: None,
        plain_http=rest.get("plain_http"),
    )


def basic_challenge(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="r"'})


def test_no_credentials_go_over_plain_http_to_another_machine() -> None:
    sent: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return basic_challenge(request)

    with (
        mocked(handle, "registry.example:5000", plain_http=True) as client,
        pytest.raises(CouldNotError, match="CREDENTIALS_OVER_PLAIN_HTTP"),
    ):
        client.ping()
    assert all("Authorization" not in request.headers for request in sent)


def test_no_credentials_go_to_a_token_service_over_plain_http() -> None:
    sent: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        realm = 'Bearer realm="http://tokens.example/token"'
        return httpx.Response(401, headers={"WWW-Authenticate": realm})

    with (
        mocked(handle, "registry.example") as client,
        pytest.raises(CouldNotError, match="CREDENTIALS_OVER_PLAIN_HTTP"),
    ):
        client.ping()
    assert sent == ["https://registry.example/v2/"]


def test_a_redirect_out_of_tls_is_not_followed() -> None:
    def handle(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(307, headers={"Location": f"http://s.example/b?sig={SECRET}"})

    with (
        mocked(handle, "registry.example") as client,
        pytest.raises(CouldNotError, match="REGISTRY_REDIRECT") as caught,
    ):
        client.head("o/r", "cpu")
    assert SECRET not in str(caught.value)


def test_the_hub_is_spoken_to_at_its_api() -> None:
    hosts: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return httpx.Response(200)

    with mocked(handle, "docker.io") as client:
        client.ping()
    assert hosts == ["registry-1.docker.io"]


@pytest.mark.parametrize("answer", [b"no json", b"{}", b'{"token": "a\\nb"}'])
def test_a_token_answer_without_a_token_is_an_error(answer: bytes) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            return httpx.Response(200, content=answer)
        realm = 'Bearer realm="https://tokens.example/token"'
        return httpx.Response(401, headers={"WWW-Authenticate": realm})

    with (
        mocked(handle, "registry.example") as client,
        pytest.raises(CouldNotError, match="REGISTRY_TOKEN"),
    ):
        client.ping()


def failing(cause: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def handle(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no connection") from cause

    return handle


def test_a_certificate_that_is_not_trusted_names_the_setting() -> None:
    cause = ssl.SSLCertVerificationError(1, "self-signed certificate")
    cause.verify_message = "self-signed certificate"
    with (
        mocked(failing(cause), "registry.example") as client,
        pytest.raises(CouldNotError, match="SSL_CERT_FILE"),
    ):
        client.ping()


def test_tls_to_a_plain_server_says_how_to_turn_it_off(server: FakeRegistry) -> None:
    with (
        Registry(server.host, plain_http=False, sleep=lambda _: None) as client,
        pytest.raises(CouldNotError, match=r"plain http.*"),
    ):
        client.ping()


def test_a_port_where_nothing_listens_is_named() -> None:
    with serving(FakeRegistry()) as gone:
        host = gone.host
    with (
        Registry(host, sleep=lambda _: None) as client,
        pytest.raises(CouldNotError, match=f"nothing listens at {host}"),
    ):
        client.ping()


def test_a_name_that_does_not_resolve_is_named() -> None:
    with (
        Registry("registry.invalid", sleep=lambda _: None) as client,
        pytest.raises(CouldNotError, match=r"registry\.invalid cannot be resolved"),
    ):
        client.ping()


def test_a_web_server_is_told_from_a_registry() -> None:
    with (
        mocked(lambda _: httpx.Response(404), "registry.example") as client,
        pytest.raises(CouldNotError, match="NOT_A_REGISTRY"),
    ):
        client.ping()


def test_a_registry_text_cannot_write_on_the_terminal() -> None:
    body = {"errors": [{"code": "DENIED", "message": "no\x1b[2J\nrights" + "x" * 5000}]}
    with (
        mocked(lambda _: httpx.Response(403, json=body), "registry.example") as client,
        pytest.raises(RocmTorchError, match="DENIED: no") as caught,
    ):
        client.ping()
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 800


def test_a_secret_is_in_no_repr() -> None:
    assert SECRET not in repr(ALICE)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost:5000", True),
        ("127.0.0.9", True),
        ("[::1]:5000", True),
        ("localhost.example", False),
        ("127.example:80", False),
        ("10.0.0.1:5000", False),
        ("ghcr.io", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
