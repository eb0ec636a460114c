"""What all tests share: one folder a run, on the disk of the working copy, gone when it ends."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no fault of the code: no example has a deadline.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("ours"), max_examples=25_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ours"))

RUNS = Path(__file__).parents[1] / ".rocm-torch" / "test-runs"
RUN = "ROCM_TORCH_TEST_RUN"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let whoever changed a template write the golden files anew, to review them as a diff."""
    parser.addoption("--update-golden", action="store_true", help="write tests/unit/golden anew")


def pytest_configure(config: pytest.Config) -> None:
    """Name the run, in the process that starts the workers; they inherit the name."""
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = uuid.uuid4().hex[:12]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the workers shared, when the last of them is done."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(RUNS / os.environ.get(RUN, "none"), ignore_errors=True)


@pytest.fixture(scope="session")
def run_folder() -> Path:
    """Return the folder that all workers of this run share."""
    folder = RUNS / os.environ[RUN]
    folder.mkdir(parents=True, exist_ok=True)
    return folder
