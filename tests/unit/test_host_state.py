"""A saved host state: what is private leaves it, what rules look at stays, the schema holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from builder.host.schema import host_state_json_schema
from builder.host.snapshot import (
    SCHEMA,
    DeviceNode,
    Engine,
    Gpu,
    HostSnapshot,
    Place,
    ToolOutput,
    from_document,
    to_document,
)
from builder.host.snapshot.private import without_private

VALIDATOR = Draft202012Validator(host_state_json_schema())


@pytest.mark.parametrize(
    ("text", "private"),
    [
        ("https://alice:pw0rd@pypi.corp.example/simple", "alice"),
        ("https://alice:pw0rd@pypi.corp.example/simple", "corp"),
        ("https://pypi.corp.example/simple?sig=abcd1234efgh", "abcd1234"),
        ("tcp://build7.corp.example:2375", "build7"),
        ("http://[fe80::1%25eth0]:8080/x", "fe80"),
        ("peer 192.168.17.4 left", "192.168"),
        ("peer fe80::1ff:fe23:4567:890a left", "4567"),
        ("peer 2001:db8:1:2:3:4:5:6 left", "db8"),
        ("link aa:bb:cc:dd:ee:ff up", "aa:bb"),
        ("written by bob@corp.example", "bob"),
        ("ghp_0123456789abcdef", "0123"),
        ("github_pat_11ABCDEFG0123456789_abc", "11ABC"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFO"),
        ("Bearer abcdefghijklmnop", "abcdefgh"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "hbGci"),
        ("Serial Number: 692234000123", "692234"),
        ("/home/alice/tmp", "alice"),
        ("/Users/alice/tmp", "alice"),
    ],
)
def test_names_addresses_and_tokens_are_not_saved(text: str, private: str) -> None:
    assert private not in json.dumps(to_document(HostSnapshot(dmesg=(text, f"x\n{text}"))))
    assert (
        private not in without_private({"environment": {"TMPDIR": text}})["environment"]["TMPDIR"]
    )


@pytest.mark.parametrize(
    "name",
    ["DOCKER_AUTH_CONFIG", "APPTAINER_DOCKER_USERNAME", "SLURM_JOB_USER", "SLURM_JOB_ACCOUNT"],
)
def test_variables_that_name_a_login_are_saved_without_it(name: str) -> None:
    login = '{"auths": {"r": {"auth": "YWxpY2U6cHcwcmQ="}}}'
    saved = json.dumps(to_document(HostSnapshot(environment={name: login}, dmesg=(login,))))
    assert "YWxpY2U" not in saved


@pytest.mark.parametrize(
    "text",
    [
        "https://download.pytorch.org/whl/rocm6.2.4",
        "https://repo.radeon.com/rocm/manylinux/",
        "unix:///run/user/1000/docker.sock",
        "amdgpu 0000:03:00.0: amdgpu: Fetched VBIOS",
        "terminate called after throwing std::runtime_error, c10::Error",
        "amdgpu version: 6.14.14.0",
        "GPU-0123456789abcdef,1",
        "0,1",
    ],
)
def test_what_rules_look_at_stays(text: str) -> None:
    snapshot = HostSnapshot(environment={"X": text}, dmesg=(text,))
    assert to_document(snapshot)["environment"]["X"] == text
    assert to_document(snapshot)["dmesg"] == [text]


def test_versions_with_four_numbers_are_no_addresses() -> None:
    snapshot = HostSnapshot(
        kernel="6.6.87.2-microsoft-standard-WSL2",
        amdgpu_version="30.30.1.0",
        engines=(Engine("docker", version="28.0.0.1"),),
    )
    assert from_document(to_document(snapshot)) == snapshot


def test_values_of_variables_that_name_a_secret_or_a_person_are_not_saved() -> None:
    environment = {
        "HF_TOKEN": "x",
        "AMD_API_KEY": "x",
        "SLURM_JOB_USER": "x",
        "SLURM_SUBMIT_HOST": "x",
        "SLURM_JOB_ACCOUNT": "x",
        "SLURM_NTASKS": "8",
        "HIP_VISIBLE_DEVICES": "0",
        "TOKENIZERS": "",
    }
    kept = to_document(HostSnapshot(environment=environment))["environment"]
    told = {name for name, value in kept.items() if value != "(redacted)"}
    assert told == {"SLURM_NTASKS", "HIP_VISIBLE_DEVICES", "TOKENIZERS"}


def test_the_owner_is_taken_out_wherever_he_stands_and_common_words_stay() -> None:
    snapshot = HostSnapshot(
        environment={"HF_HOME": "/scratch/alice/hf", "TMPDIR": "/malice/amd"},
        dmesg=("node17 kernel: amdgpu loaded by ALICE",),
    )
    saved = to_document(snapshot, names=("alice", "node17", "amd", "x"))
    assert saved["environment"] == {"HF_HOME": "/scratch/(name)/hf", "TMPDIR": "/malice/amd"}
    assert saved["dmesg"] == ["(name) kernel: amdgpu loaded by (name)"]


@given(st.text(st.characters(codec="ascii")))
def test_what_was_saved_is_saved_again_as_it_is(text: str) -> None:
    once = without_private(text)
    assert without_private(once) == once


def test_the_schema_is_one_and_takes_a_full_state() -> None:
    Draft202012Validator.check_schema(host_state_json_schema())
    snapshot = HostSnapshot(
        kernel="6.8.0",
        db_groups=(1, 2),
        groups={"render": 992},
        nodes=(DeviceNode("/dev/kfd", open_errno=""),),
        gpus=(Gpu(0, "gfx1100"),),
        engines=(Engine("docker"),),
        places={"shm": Place("/dev/shm", 64 << 20)},
        tools={"rocminfo": ToolOutput("rocminfo", 8)},
        files={"/x": True},
    )
    document = json.loads(json.dumps(to_document(snapshot)))
    VALIDATOR.validate(document)
    assert from_document(document) == snapshot


_VALUES = st.sampled_from([None, "x", 3, True, [], ["a"], [1], {}, {"a": 1}, {"a": "b"}, 1.5])
_MEMBERS = st.one_of(
    st.tuples(st.sampled_from(sorted(host_state_json_schema()["properties"])), _VALUES),
    st.tuples(
        st.just("nodes"), st.lists(st.dictionaries(st.sampled_from(["path", "gid"]), _VALUES))
    ),
    st.tuples(st.just("colour"), _VALUES),
)


@given(st.lists(_MEMBERS, max_size=3))
def test_the_schema_and_the_reader_accept_the_same(members: list[tuple[str, Any]]) -> None:
    document = {"schema": SCHEMA, **dict(members)}
    try:
        from_document(document)
        read = True
    except ValueError:
        read = False
    assert VALIDATOR.is_valid(document) == read
