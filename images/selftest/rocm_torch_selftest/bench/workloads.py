"""The workloads by name, and their versioned ids, which fix everything that decides the time.

Batches, ``cudnn.benchmark`` and the matmul precision "high" are those of the article whose
figures this level replaces; dtype, sizes, loss and optimizer are ours, because it names none.
A change to what a step computes is a new version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping

TRAIN = "train"
INFER = "infer"
DTYPES = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class Workload:
    """One workload.

    Attributes:
        name: of the model, as it stands in ids.
        model: its module in ``models/``.
        mode: ``train``, ``infer`` or ``prefill``.
        batch: how many items a step works on.
        shape: the input's size, as it stands in ids.
        dtype: ``fp32``, ``fp16``, ``bf16``, or ``amp-`` and one of the last two.
        layout: ``contiguous`` or ``channels_last``.
        optimizer: ``sgd``, ``adamw``, or empty where nothing is trained.
        unit: what one item is.
        items: units in one item of the batch (tokens of a sequence).
        replay: the device replays one recorded step, so that the host's launches, which jitter,
            are no part of the time.
        tiny: sizes that show that the code runs, and measure nothing.
        version: of what a step computes.
    """

    name: str
    model: str
    mode: str
    batch: int
    shape: str
    dtype: str
    layout: str
    optimizer: str
    unit: str
    items: int = 1
    replay: bool = False
    tiny: bool = False
    version: int = 1

    @property
    def id(self) -> str:
        """Return the versioned id."""
        name = f"{self.name}-tiny" if self.tiny else self.name
        parts = (name, self.mode, f"b{self.batch}", self.shape, self.dtype, self.layout)
        optimizer = (self.optimizer,) if self.optimizer else ()
        graph = ("graph",) if self.replay else ()
        return "/".join((*parts, *optimizer, *graph, f"v{self.version}"))

    def with_dtype(self, dtype: str) -> Workload:
        """Return the workload in another dtype; training in a narrow one is mixed precision.

        A scaled gradient (float16) asks the host after each step, so such a step is not replayed.
        """
        mixed = self.mode == TRAIN and dtype != "fp32"
        replay = self.replay and not (mixed and dtype == "fp16")
        return replace(self, dtype=f"amp-{dtype}" if mixed else dtype, replay=replay)

    def made_tiny(self) -> Workload:
        """Return the workload with sizes for a CPU, where float16 is not computed everywhere."""
        dtype = self.dtype if self.mode == TRAIN else "fp32"
        shape, items = _TINY[self.name]
        return replace(
            self, batch=2, shape=shape, items=items, dtype=dtype, replay=False, tiny=True
        )

    def to_json(self) -> Mapping[str, Any]:
        """Return the fields, for the way into a worker process."""
        return dict(self.__dict__)


_LAST, _PLAIN = "channels_last", "contiguous"
ALL = (
    Workload("resnet50", "resnet50", TRAIN, 256, "224", "amp-bf16", _LAST, "sgd", "images"),
    Workload(
        "bert-base",
        "bert_base",
        TRAIN,
        32,
        "s128",
        "amp-bf16",
        _PLAIN,
        "adamw",
        "sequences",
        replay=True,
    ),
    Workload("yolov5s", "yolov5s", TRAIN, 64, "640", "amp-bf16", _LAST, "sgd", "images"),
    Workload("vit-b16", "vit_b16", TRAIN, 128, "224", "amp-bf16", _PLAIN, "adamw", "images"),
    Workload("sd15-unet", "sd15_unet", INFER, 1, "64x64", "fp16", _LAST, "", "steps", replay=True),
    Workload(
        "llama2-7b",
        "llama2_7b",
        "prefill",
        1,
        "s512",
        "fp16",
        _PLAIN,
        "",
        "tokens",
        items=512,
        replay=True,
    ),
    Workload(
        "whisper-medium",
        "whisper_medium",
        INFER,
        8,
        "encoder+32tokens",
        "fp16",
        _PLAIN,
        "",
        "clips",
        replay=True,
    ),
)
BY_NAME = {workload.name: workload for workload in ALL}
# Input and units an item of each tiny workload.
_TINY = {
    "resnet50": ("32", 1),
    "bert-base": ("s16", 1),
    "yolov5s": ("64", 1),
    "vit-b16": ("32", 1),
    "sd15-unet": ("8x8", 1),
    "llama2-7b": ("s16", 16),
    "whisper-medium": ("encoder+4tokens", 1),
}
