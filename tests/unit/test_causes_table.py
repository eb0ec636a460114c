from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.plan.causes import Output, causes
from builder.plan.causes.model import Pattern
from builder.plan.causes.table import RULES
from builder.plan.lint import rules, torch

PATTERNS = [rule for rule in RULES if isinstance(rule, Pattern)]
PAGE = (Path(__file__).parents[2] / "docs/faults.md").read_text("utf-8")
_CODE = re.compile(r'(?:code=|Words\(\s*)"([A-Z0-9_]+)"')


@pytest.mark.parametrize("rule", PATTERNS, ids=lambda rule: rule.code)
def test_a_rule_has_words_for_every_group_that_it_names(rule: Pattern) -> None:
    words = dict.fromkeys(rule.seen.groupindex, "x")
    for text in (rule.what, rule.why, rule.fix):
        assert text is None or text.format_map(words)
    assert rule.fix, "a cause that nobody can act on"
    assert not rule.what.endswith(".")


def test_every_code_of_the_lint_is_on_the_page() -> None:
    sources = [Path(module.__file__ or "").read_text("utf-8") for module in (rules, torch)]
    codes = {code for source in sources for code in _CODE.findall(source)}
    assert len(codes) > 8
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()


@given(st.text(max_size=300), st.sampled_from([None, 0, 1, 137]))
def test_any_text_can_be_read_and_causes_come_in_order(text: str, status: int | None) -> None:
    found = causes(Output(text, exit_code=status))
    keys = [(cause.severity != "error", cause.position) for cause in found]
    assert keys == sorted(keys)


def test_numbers_in_addresses_are_no_status_and_a_long_log_is_read_from_its_end() -> None:
    lines = [f"#9 {n}.0 Get:{n} http://x/pool/rocm-{n}.deb [{n} kB]" for n in range(20_000)]
    assert causes(Output("\n".join(lines), exit_code=1)) == ()
    lines.append("#9 error: externally-managed-environment")
    (cause,) = causes(Output("\n".join(lines), exit_code=1))
    assert cause.code == "PEP668"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("HTTP/1.1 401 Unauthorized", "REGISTRY_DENIED"),
        ("unexpected status code 403 Forbidden", "REGISTRY_DENIED"),
        ("unexpected status from HEAD request to https://x/v2/a: 503 Service", "REGISTRY_FAILED"),
        ("HTTP 429", "RATE_LIMIT"),
        ("received unexpected HTTP status: 502 Bad Gateway", "REGISTRY_FAILED"),
        ("2026-12-01 10:00:00 ERROR 404: Not Found.\ngpg: no valid OpenPGP data", "REPO_KEY_404"),
        ("wget: server returned error: HTTP/1.1 404 Not Found\ngpg: no valid", "REPO_KEY_404"),
        ("E: Failed to fetch http://x/a.deb  404  Not Found [IP: 1.2.3.4 80]", "ARCHIVE_MOVED"),
        ("curl: (35) OpenSSL SSL_connect: SSL_ERROR_SYSCALL", "CONNECTION_LOST"),
        ("curl: (6) Could not resolve host: repo.radeon.com", "NAME_NOT_RESOLVED"),
        ("Read 502 lines, 401 of status", None),
        (
            "RuntimeError: unable to write to file </torch_1_1>: No space left on device (28)",
            "SHM_TOO_SMALL",
        ),
        ("c++: fatal error: Killed signal terminated program cc1plus", "OUT_OF_MEMORY"),
    ],
)
def test_words_of_real_tools_are_read(line: str, code: str | None) -> None:
    found = causes(Output(line, exit_code=1))
    assert (found[0].code if found else None) == code
