"""What one step of each workload computes."""

from __future__ import annotations

import importlib
from typing import Any, Callable

from rocm_torch_selftest.bench.workloads import TRAIN, Workload

SEED = 20261130
_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_BEFORE_RECORDING = 3  # steps that find their kernels and make the optimizer's state
_CONTEXT_TOKENS = 77  # of the text encoder of Stable Diffusion 1.5

Step = Callable[[], Any]


def torch_dtype(torch: Any, dtype: str) -> Any:
    """Return torch's dtype of ``fp32``, ``fp16``, ``bf16`` or ``amp-...``."""
    return getattr(torch, _TYPES[dtype.replace("amp-", "")])


def build_step(torch: Any, workload: Workload, device: str) -> Step:
    """Build model and input on the device, and return the step.

    Weights are random and input is synthetic; both are the same in each process.
    """
    layers = importlib.import_module("rocm_torch_selftest.models.layers")
    module = importlib.import_module(f"rocm_torch_selftest.models.{workload.model}")
    torch.manual_seed(SEED)
    training = workload.mode == TRAIN
    dtype = torch.float32 if training else torch_dtype(torch, workload.dtype)
    config = module.TINY if workload.tiny else module.Config()
    with layers.born_on(device, dtype):
        model = module.build(config)
    model = model.to(device=device, dtype=dtype)
    if workload.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    if not training:
        forward = _FORWARD[workload.name](torch, workload, device, model.eval(), config)
        return _replayed(torch, workload, device, _inference(torch, forward))
    model.train()
    loss, extra = _LOSSES[workload.name](torch, workload, device, model, config)
    parameters = [*model.parameters(), *extra]
    return _replayed(torch, workload, device, _training(torch, workload, device, parameters, loss))


def _replayed(torch: Any, workload: Workload, device: str, step: Step) -> Step:
    """Return the step, or one that records it at its first call and replays it from then on."""
    if not workload.replay or device == "cpu":
        return step
    recorded: list[Any] = []

    def replay() -> None:
        if not recorded:
            recorded.append(_record(torch, step))
        recorded[0].replay()

    return replay


def _record(torch: Any, step: Step) -> Any:
    """Record what a step starts on the device; it has run before, on a stream of its own."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(_BEFORE_RECORDING):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def _inference(torch: Any, forward: Step) -> Step:
    def step() -> Any:
        with torch.no_grad():
            return forward()

    return step


def _training(
    torch: Any, workload: Workload, device: str, parameters: list[Any], loss: Step
) -> Step:
    """Return a step of forward, loss, backward and update; float16 gets its scaled gradients."""
    mixed = workload.dtype.startswith("amp-")
    dtype = torch_dtype(torch, workload.dtype)
    if workload.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    else:
        capturable = workload.replay and device != "cpu"
        optimizer = torch.optim.AdamW(parameters, lr=1e-5, capturable=capturable)
    scaler = (
        torch.cuda.amp.GradScaler() if workload.dtype == "amp-fp16" and device != "cpu" else None
    )

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        # A recorded step may not depend on casts that an earlier one has kept.
        with torch.autocast(
            device.split(":")[0], dtype=dtype, enabled=mixed, cache_enabled=not workload.replay
        ):
            value = loss()
        if scaler is None:
            value.backward()
            optimizer.step()
        else:
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
        return value

    return step


def _images(torch: Any, workload: Workload, device: str) -> Any:
    pixels = int(workload.shape)
    images = torch.randn(workload.batch, 3, pixels, pixels, device=device)
    if workload.layout == "channels_last":
        images = images.to(memory_format=torch.channels_last)
    return images


def _tokens(torch: Any, workload: Workload, device: str, config: Any) -> Any:
    length = int(workload.shape[1:])
    return torch.randint(1, config.vocabulary, (workload.batch, length), device=device)


def _classifier(torch: Any, workload: Workload, device: str, model: Any, config: Any) -> Any:
    images = _images(torch, workload, device)
    labels = torch.randint(0, config.classes, (workload.batch,), device=device)

    def loss() -> Any:
        return torch.nn.functional.cross_entropy(model(images), labels)

    return loss, []


def _detector(torch: Any, workload: Workload, device: str, model: Any, _config: Any) -> Any:
    module = importlib.import_module(f"rocm_torch_selftest.models.{workload.model}")
    images = _images(torch, workload, device)
    return (lambda: module.fixed_assignment_loss(model(images))), []


def _sentences(torch: Any, workload: Workload, device: str, model: Any, config: Any) -> Any:
    tokens = _tokens(torch, workload, device, config)
    labels = torch.randint(0, 2, (workload.batch,), device=device)
    head = torch.nn.Linear(config.width, 2).to(device)

    def loss() -> Any:
        return torch.nn.functional.cross_entropy(head(model(tokens)), labels)

    return loss, list(head.parameters())


def _denoise(torch: Any, workload: Workload, device: str, model: Any, config: Any) -> Step:
    dtype = torch_dtype(torch, workload.dtype)
    rows, columns = (int(number) for number in workload.shape.split("x"))
    latents = torch.randn(workload.batch, 4, rows, columns, device=device, dtype=dtype)
    latents = latents.to(memory_format=torch.channels_last)
    time = torch.full((workload.batch,), 500, device=device)
    shape = (workload.batch, _CONTEXT_TOKENS, config.context)
    context = torch.randn(shape, device=device, dtype=dtype)
    return lambda: model(latents, time, context)


def _prefill(torch: Any, workload: Workload, device: str, model: Any, config: Any) -> Step:
    tokens = _tokens(torch, workload, device, config)
    return lambda: model(tokens)


def _transcribe(torch: Any, workload: Workload, device: str, model: Any, config: Any) -> Step:
    tokens = int("".join(filter(str.isdigit, workload.shape)))
    shape = (workload.batch, config.bands, 2 * config.frames)
    spectrogram = torch.randn(shape, device=device, dtype=torch_dtype(torch, workload.dtype))
    return lambda: model(spectrogram, tokens)


_LOSSES: dict[str, Any] = {
    "resnet50": _classifier,
    "vit-b16": _classifier,
    "yolov5s": _detector,
    "bert-base": _sentences,
}
_FORWARD: dict[str, Any] = {
    "sd15-unet": _denoise,
    "llama2-7b": _prefill,
    "whisper-medium": _transcribe,
}
