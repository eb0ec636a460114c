"""The figures of the article whose seven models the level ``bench`` runs.

Source: its section 5.1, its author's own measurement with PyTorch 2.3 (ROCm 6.2 and CUDA 12.3).
They are printed and never compared with: neither precision nor input sizes nor what a step
contains are stated, and read as training some imply more TFLOP/s than the device's vendor gives.
"""

from __future__ import annotations

LABEL = "unverified, unit unknown"
# Model: RX 7900 XTX, RTX 4090.
FIGURES: dict[str, tuple[float, float]] = {
    "resnet50": (3820, 4150),
    "bert-base": (1890, 2010),
    "yolov5s": (218, 245),
    "vit-b16": (1940, 2080),
    "sd15-unet": (8.7, 9.2),
    "llama2-7b": (142, 158),
    "whisper-medium": (32.5, 35.1),
}


def article_lines() -> list[str]:
    """Return the figures as lines for people, each with what is known of it."""
    return [
        f"{model}: {amd:g} on an RX 7900 XTX, {nvidia:g} on an RTX 4090 ({LABEL})"
        for model, (amd, nvidia) in FIGURES.items()
    ]
