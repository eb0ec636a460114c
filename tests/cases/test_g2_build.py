"""Field cases of group G2, building images: what the program says of the logs that were reported.

What the templates cannot do wrong is in test_rendered_cases.py.
"""

from __future__ import annotations

import pytest
from told import check_told

from builder.plan.causes import Output, causes, first_cause

PINNED = (
    "The following packages have unmet dependencies:\n"
    " rocm-utils : Depends: rocm-cmake (= 0.14.0.70201-1~24.04) but 5.0.0-1 is to be installed\n"
    "E: Unable to correct problems, you have held broken packages.\n"
)
KEY_404 = (
    "#9 0.9 curl: (22) The requested URL returned error: 404\n"
    "#9 0.9 gpg: no valid OpenPGP data found.\n"
)
EXPIRED = (
    "W: GPG error: http://repo.radeon.com/rocm/apt/4.2 ubuntu InRelease: The following signatures"
    " were invalid: EXPKEYSIG 9386B48A1A693C5C\n"
)
FLAT = (
    "ERROR: Could not find a version that satisfies the requirement torch==2.9.1+rocm7.2.1 (from"
    " versions: none)\nERROR: No matching distribution found for torch==2.9.1+rocm7.2.1\n"
)
GLIBCXX = (
    "ImportError: /opt/conda/envs/py_3.10/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found"
    " (required by /opt/rocm/lib/libmigraphx_c.so.3)\n"
)
REPLACED = (
    "Collecting torch==2.10.0\nCollecting nvidia-cublas-cu12==12.8.4.1\n"
    "Successfully installed torch-2.10.0\n"
)
PUSHED = "failed to register layer: write /opt/rocm/lib/x: no space left on device\n"
LOGS = [
    pytest.param(PINNED, "APT_PIN_MISSING", ("Pin-Priority: 600",), id="g2-07-apt-pin-missing"),
    pytest.param(
        "/bin/sh: 1: apt-key: not found\n", "APT_KEY_REMOVED", ("signed-by",), id="g2-08-apt-key"
    ),
    pytest.param(KEY_404, "REPO_KEY_404", ("404",), id="g2-09-key-404"),
    pytest.param(
        EXPIRED, "APT_KEY_EXPIRED", ("9386B48A1A693C5C", "repo.radeon.com"), id="g2-10-expired-key"
    ),
    pytest.param(
        "E: The repository 'https://repo.radeon.com/rocm/apt/7.2 focal Release' does not have a"
        " Release file.\n",
        "REPO_SUITE_MISSING",
        ("focal", "7.2.0"),
        id="g2-11-repo-release-404",
    ),
    pytest.param(
        "error: externally-managed-environment\n\n× This environment is externally managed\n",  # noqa: RUF001
        "PEP668",
        ("venv",),
        id="g2-13-pep668",
    ),
    pytest.param(
        GLIBCXX,
        "LIBSTDCXX_SHADOWED",
        ("/opt/conda/envs/py_3.10/lib/libstdc++.so.6",),
        id="g2-17-glibcxx",
    ),
    pytest.param(
        "Error! Your kernel headers for kernel 6.8.0-40-generic cannot be found.\n",
        "DKMS_IN_IMAGE",
        ("--no-dkms", "host", "6.8.0-40-generic"),
        id="g2-18-dkms-in-image",
    ),
    pytest.param(PUSHED, "DISK_FULL", ("docker system df", "prune"), id="g2-19-disk-full"),
    pytest.param(
        "ImportError: librocm_sysdeps_liblzma.so.5: cannot open shared object file\n",
        "SHARED_LIBRARY_MISSING",
        ("librocm_sysdeps_liblzma.so.5", "ld.so.conf.d"),
        id="g2-24-ld-library-path",
    ),
]
NEVER = {
    "PEP668": ("rm EXTERNALLY-MANAGED", "EXTERNALLY-MANAGED", "--break-system-packages"),
    "LIBSTDCXX_SHADOWED": ("upgrade glibc",),
}


@pytest.mark.parametrize(("text", "code", "says"), LOGS)
def test_a_log_is_told_by_its_cause(text: str, code: str, says: tuple[str, ...]) -> None:
    cause = first_cause(Output(text, exit_code=1))
    assert cause is not None
    assert cause.code == code
    assert not cause.retryable
    check_told(cause.problem, says, NEVER.get(code, ()))


@pytest.mark.parametrize("case_id", ["g2-04-find-links"])
def test_an_address_that_is_no_index_is_told_with_the_option_for_it(case_id: str) -> None:
    arguments = "--index-url https://repo.radeon.com/rocm/manylinux/rocm-rel-7.2.1/"
    cause = first_cause(Output(FLAT, pip_args=arguments))
    assert cause is not None
    assert cause.code == "INDEX_STYLE_MISMATCH"
    check_told(cause.problem, ("--find-links", arguments, "torch==2.9.1+rocm7.2.1"))


def test_a_network_that_was_away_is_no_index_of_the_wrong_style() -> None:
    retry = "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewC'\n"
    cause = first_cause(Output(retry + FLAT))
    assert cause is not None
    assert (cause.code, cause.retryable) == ("CONNECTION_LOST", True)


@pytest.mark.parametrize("case_id", ["g2-02-requirements-torchvision"])
def test_a_log_in_which_torch_is_replaced_is_told_even_when_pip_was_content(case_id: str) -> None:
    output = Output(
        REPLACED,
        exit_code=0,
        requirements=("torchvision",),
        installed={"torch": "2.9.1+rocm7.2.1", "torchvision": "0.24.0+rocm7.2.1"},
    )
    cause = first_cause(output)
    assert cause is not None
    assert cause.code == "ROCM_TORCH_REPLACED"
    check_told(cause.problem, ("torchvision", "2.9.1+rocm7.2.1", "2.10.0", "--constraint"))


@pytest.mark.parametrize(
    "text",
    [
        "Collecting torch==2.9.1+rocm7.2.1\nSuccessfully installed torch-2.9.1+rocm7.2.1\n",
        "Collecting numpy\nSuccessfully installed numpy-2.3.1 torchmetrics-1.8.0\n",
    ],
)
def test_a_log_that_keeps_the_rocm_build_is_fine(text: str) -> None:
    assert causes(Output(text, exit_code=0, installed={"torch": "2.9.1+rocm7.2.1"})) == ()


@pytest.mark.parametrize("case_id", ["g2-16-numpy-abi"])
def test_a_warning_about_numpy_counts_although_the_program_ended_well(case_id: str) -> None:
    text = "2.4.0+rocm6.1\nUserWarning: Failed to initialize NumPy: _ARRAY_API not found\n"
    cause = first_cause(Output(text, exit_code=0))
    assert cause is not None
    assert cause.code == "NUMPY_ABI"


def test_a_libstdcxx_of_the_distribution_itself_is_too_old_and_shadowed_by_nothing() -> None:
    text = GLIBCXX.replace("/opt/conda/envs/py_3.10/lib/", "/lib/x86_64-linux-gnu/")
    cause = first_cause(Output(text))
    assert cause is not None
    assert cause.code == "LIBSTDCXX_TOO_OLD"


def test_what_a_step_got_over_is_not_the_cause_of_a_later_one() -> None:
    log = (
        "#5 0.3 W: Temporary failure resolving 'deb.debian.org'\n#5 DONE\n"
        "#9 1.2 error: externally-managed-environment\n"
        '#9 ERROR: process "/bin/sh -c pip install x" did not complete: exit code: 1\n'
        "ERROR: failed to solve: exit code: 1\n"
    )
    assert [cause.code for cause in causes(Output(log, exit_code=1))] == ["PEP668"]


def test_a_log_that_says_nothing_known_has_no_cause() -> None:
    assert causes(Output("#3 make: *** [all] Error 2\n#3 ERROR: exit code: 2\n")) == ()
    assert causes(Output("")) == ()


def test_a_program_that_ended_well_has_no_cause_for_its_words() -> None:
    assert causes(Output(PUSHED + PINNED + KEY_404, exit_code=0)) == ()
