"""Outputs are written after the tools' documentation; none was recorded on an AMD GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rocm_torch_selftest.bench import smi
from rocm_torch_selftest.bench.device_state import read_state
from rocm_torch_selftest.context import Ran

NVIDIA = (
    "0, 00000000:0A:00.0, 345, 3201, 31, 76.10, 700.00, Disabled\n"
    "1, 00000000:18:00.0, 1980, 3201, 55, 612.33, 700.00, [N/A]\n"
)
METRIC = [
    {
        "gpu": 0,
        "clock": {
            "gfx_0": {"clk": {"value": 2100, "unit": "MHz"}},
            "mem_0": {"clk": {"value": 1300, "unit": "MHz"}},
        },
        "temperature": {"edge": "N/A", "hotspot": {"value": 61, "unit": "C"}},
        "power": {"socket_power": {"value": 540, "unit": "W"}},
    }
]
STATIC = [
    {
        "gpu": 0,
        "bus": {"bdf": "0000:0c:00.0"},
        "limit": {"max_power": {"value": 750, "unit": "W"}},
        "partition": {"compute_partition": "SPX", "memory_partition": "NPS1"},
    }
]
PROCESSES = [
    {
        "gpu": 0,
        "process_list": [
            {"process_info": {"pid": 77, "memory_usage": {"vram_mem": {"value": 2, "unit": "GB"}}}},
            {"process_info": "No running processes detected"},
        ],
    }
]
ROCM = {
    "card0": {
        "Temperature (Sensor edge) (C)": "41.0",
        "Temperature (Sensor junction) (C)": "52.0",
        "sclk clock speed:": "(2371Mhz)",
        "mclk clock speed:": "(1249Mhz)",
        "Average Graphics Package Power (W)": "203.0",
        "Max Graphics Package Power (W)": "327.0",
    },
    "system": {"PID1234": "python3, 1, 1048576, 0, unknown"},
}


def test_nvidia_is_found_by_its_address_whatever_the_width_of_the_domain() -> None:
    found = smi.nvidia_state(NVIDIA, "0000:18:00.0", 0)
    assert found == {
        "clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "temperature_c": 55,
        "power_w": 612.33,
        "power_cap_w": 700,
        "partition_mode": None,
    }
    assert smi.nvidia_state(NVIDIA, None, 0)["partition_mode"] == "MIG Disabled"


@pytest.mark.parametrize("text", ["", "No devices were found\n", "1, 2, 3"])
def test_what_names_no_gpu_is_unreadable(text: str) -> None:
    with pytest.raises(smi.UnreadableError):
        smi.nvidia_state(text, None, 0)
    with pytest.raises(smi.UnreadableError):
        smi.amd_state(text, text, 0)
    with pytest.raises(smi.UnreadableError):
        smi.rocm_state(text, 0)


def test_nvidia_processes_without_a_size_are_still_processes() -> None:
    found = smi.nvidia_processes("311, 1024\n312, [N/A]\nNo running\n")
    assert found == [{"pid": 311, "memory_mib": 1024}, {"pid": 312, "memory_mib": None}]


@pytest.mark.parametrize("wrapped", [False, True])
def test_amd_smi_is_read_as_a_list_and_as_an_object_around_it(wrapped: bool) -> None:
    def text(document: Any) -> str:
        return json.dumps({"gpu_data": document} if wrapped else document)

    assert smi.amd_index(text(STATIC), "0000:0c:00.0", 5) == 0
    found = smi.amd_state(text(METRIC), text(STATIC), 0)
    assert found == {
        "clock_mhz": 2100,
        "memory_clock_mhz": 1300,
        "temperature_c": 61,
        "power_w": 540,
        "power_cap_w": 750,
        "partition_mode": "SPX/NPS1",
    }
    assert smi.amd_processes(text(PROCESSES), 0) == [{"pid": 77, "memory_mib": 2048}]


def test_rocm_smi_is_read_by_words_of_its_keys() -> None:
    found = smi.rocm_state(json.dumps(ROCM), 0)
    assert found["clock_mhz"] == 2371
    assert found["temperature_c"] == 52
    assert (found["power_w"], found["power_cap_w"]) == (203, 327)
    assert smi.rocm_processes(json.dumps(ROCM)) == [{"pid": 1234, "memory_mib": 1.0}]


def test_a_missing_tool_leaves_nothing_but_the_reason() -> None:
    found = read_state("cuda", None, which=lambda _: None)
    assert found["tool"] is None
    assert found["clock_mhz"] is None
    assert found["other_processes"] is None
    assert found["reason"] == "nvidia-smi is not installed"


def test_rocm_smi_answers_where_amd_smi_fails() -> None:
    def program(argv: tuple[str, ...]) -> Ran:
        return Ran(1, "", "no driver") if argv[0] == "amd-smi" else Ran(0, json.dumps(ROCM), "")

    found = read_state("hip", None, which=lambda name: f"/bin/{name}", program=program)
    assert (found["tool"], found["reason"]) == ("rocm-smi", None)
    assert found["other_processes"] == [{"pid": 1234, "memory_mib": 1.0}]


def failing(_argv: tuple[str, ...]) -> Ran:
    return Ran(1, "", "no driver")


def test_all_tools_that_fail_are_named() -> None:
    found = read_state("hip", None, lambda name: name, failing)
    assert found["reason"] == "amd-smi failed: no driver; rocm-smi failed: no driver"
