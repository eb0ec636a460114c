from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.oci import (
    Descriptor,
    Digest,
    Reference,
    canonical_json,
    is_registry,
    is_repository,
    is_tag,
)

HEX = "a" * 64


@pytest.mark.parametrize(
    "text", ["", HEX, f"sha256:{HEX[:-1]}", f"sha256:{HEX.upper()}", f"sha512:{HEX}"]
)
def test_what_is_no_sha256_digest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a sha256 digest"):
        Digest(text)


def test_a_digest_with_a_line_end_is_refused() -> None:
    with pytest.raises(ValueError, match="not a sha256 digest"):
        Digest(f"sha256:{HEX}\n")


@given(st.binary())
def test_the_digest_of_content_can_be_read_back(content: bytes) -> None:
    digest = Digest.of(content)
    assert Digest(str(digest)) == digest
    assert digest == f"sha256:{digest.hex}"


@given(
    st.binary(),
    st.dictionaries(st.text(min_size=1), st.text()),
    st.one_of(st.none(), st.text(min_size=1)),
)
def test_a_descriptor_survives_its_json_form(
    content: bytes, annotations: dict[str, str], artifact: str | None
) -> None:
    described = Descriptor("text/plain", Digest.of(content), len(content), annotations, artifact)
    assert Descriptor.from_json(json.loads(canonical_json(described.to_json()))) == described


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("debian", "docker.io/library/debian"),
        ("debian:13", "docker.io/library/debian:13"),
        ("rocm/pytorch:a", "docker.io/rocm/pytorch:a"),
        ("docker.io/library/debian:13", "docker.io/library/debian:13"),
        ("localhost/a", "localhost/a"),
        ("localhost:5000/a/b:c", "localhost:5000/a/b:c"),
        ("host:5000/a", "host:5000/a"),
        ("ghcr.io/a/b", "ghcr.io/a/b"),
        ("[::1]:5000/a", "[::1]:5000/a"),
        (f"a/b:c@sha256:{HEX}", f"docker.io/a/b:c@sha256:{HEX}"),
        (f"a/b@sha256:{HEX}", f"docker.io/a/b@sha256:{HEX}"),
    ],
)
def test_references_are_read_as_docker_reads_them(text: str, full: str) -> None:
    assert str(Reference.parse(text)) == full
    assert str(Reference.parse(full)) == full


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":a",
        "A/b",
        "a b",
        "a//b",
        "a:",
        "a:-x",
        "a@",
        "a@sha256:1",
        "a/b:" + "x" * 129,
        "a .b/c",
        "h:p/a",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        Reference.parse(text)


def test_tags_and_repositories_have_their_grammar() -> None:
    assert is_tag("6.2-py311")
    assert is_tag("x" * 128)
    assert not any(map(is_tag, ("", ".a", "-a", "a/b", "a b", "x" * 129, "a\n")))
    assert all(map(is_registry, ("docker.io", "localhost", "h:1", "[::1]:5000", "10.0.0.1:65535")))
    assert not any(map(is_registry, ("", "a b", "h:", "h:p", "h:65536", "h/x", "-h", "h\n")))
    assert is_repository("ourorg/rocm-torch")
    assert not any(map(is_repository, ("", "/a", "a/", "A", "a:b", "a\n")))


@given(st.dictionaries(st.text(), st.integers()))
def test_canonical_json_does_not_depend_on_order(value: dict[str, int]) -> None:
    backwards = dict(reversed(value.items()))
    assert canonical_json(value) == canonical_json(backwards)
    assert canonical_json(value).endswith(b"\n")
