"""Training steps of models from `transformers`, by the name of their configuration's class.

    make_step = step_of("LlamaConfig", {"num_hidden_layers": 16})

A model is built once, on `meta`. Each step trains a copy, with tensors that a plan can count.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import lms
from lms.errors import LMSError

#: The tasks whose models are trained, by the name of the table in transformers; the first that has
#: the configuration.
_TASKS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",
    "MODEL_MAPPING",
)
#: Tokens of a sequence, unless the model takes fewer.
_LENGTH = 2048
#: The height and width of images, for models that take any.
_EDGE = 224
#: Values of a second of sound.
_SOUND = 16000


def step_of(
    name: str, settings: Mapping[str, Any], length: int | None = None
) -> Callable[[int, bool], Callable[[], object]]:
    """A function that makes training steps: AdamW, in bfloat16.

    Args:
        name: of the class, such as "LlamaConfig".
        settings: of the configuration, where not as by default.
        length: tokens of a sequence; None for as many as the model takes, at most 2048.

    Returns:
        A function of the samples in a batch, and of whether state and parameters are paged.

    Raises:
        LMSError: there is no such configuration, or no inputs are known for its model.
    """
    transformers = _transformers(name)
    configuration = _configuration(transformers, name, settings)
    model = _model(configuration)
    inputs = _inputs(model, configuration, length)

    def make_step(samples: int, page: bool) -> Callable[[], object]:
        with_memory = _with_memory(model)
        if page:
            lms.page_parameters(with_memory)
        optimizer = torch.optim.AdamW(with_memory.parameters())
        if page:
            lms.page_optimizer(optimizer)
        batch = inputs(samples)

        def step() -> None:
            optimizer.zero_grad()
            _loss(with_memory(**batch)).backward()
            optimizer.step()

        return step

    return make_step


def _transformers(name: str) -> ModuleType:
    try:
        import transformers
    except ImportError as error:
        raise LMSError(
            f"{name} is no MODULE:FUNCTION, and configurations need the package transformers, "
            f"which is not installed ({error})"
        ) from error
    found: ModuleType = transformers
    return found


def _configuration(transformers: ModuleType, name: str, settings: Mapping[str, Any]) -> Any:
    kind = getattr(transformers, name, None)
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedConfig):
        known = [one for one in dir(transformers) if one.endswith("Config")]
        near = difflib.get_close_matches(name, known, 3)
        perhaps = f"; near are {', '.join(near)}" if near else ""
        raise LMSError(f"transformers has no configuration {name}{perhaps}")
    plain = kind()
    for key in settings:
        if not hasattr(plain, key):
            raise LMSError(f"{name} has no setting {key}")
    try:
        found = kind(**settings)
    except (TypeError, ValueError) as error:
        raise LMSError(f"{name} refuses its settings: {error}") from error
    found.use_cache = False  # for generation
    if found.is_encoder_decoder and getattr(found, "decoder_start_token_id", None) is None:
        found.decoder_start_token_id = 0
    return found


def _model(configuration: Any) -> Any:
    """The model on `meta`, for training."""
    from transformers.models.auto import modeling_auto

    for task in _TASKS:
        table = getattr(modeling_auto, task)
        if type(configuration) in table:
            kind = table[type(configuration)]
            kind = kind[0] if isinstance(kind, tuple) else kind
            with torch.device("meta"):
                return kind(configuration).to(torch.bfloat16).train()
    raise LMSError(
        f"transformers has no model to train for {type(configuration).__name__}; write a function "
        "that makes a step, and give it as MODULE:FUNCTION"
    )


def _inputs(
    model: Any, configuration: Any, length: int | None
) -> Callable[[int], dict[str, Tensor]]:
    """Makes a batch of so many samples, with labels where the model has a loss for them."""
    text = configuration.get_text_config()
    most = getattr(text, "max_position_embeddings", None) or _LENGTH
    tokens = length or min(_LENGTH, most)
    main = model.main_input_name

    def make(samples: int) -> dict[str, Tensor]:
        words = torch.zeros(samples, tokens, dtype=torch.int64)
        if main == "input_ids":
            return {"input_ids": words} | ({"labels": words} if _has_words(model) else {})
        if main == "pixel_values":
            size = getattr(configuration, "image_size", None) or _EDGE
            edges = size if isinstance(size, list | tuple) else (size, size)
            images = torch.zeros(samples, configuration.num_channels, *edges, dtype=torch.bfloat16)
            return {"pixel_values": images, "labels": torch.zeros(samples, dtype=torch.int64)}
        if main == "input_features":
            frames = 2 * configuration.max_source_positions
            shape = samples, configuration.num_mel_bins, frames
            sound = torch.zeros(*shape, dtype=torch.bfloat16)
            return {
                "input_features": sound,
                "labels": words[:, : configuration.max_target_positions],
            }
        sound = torch.zeros(samples, 10 * _SOUND, dtype=torch.bfloat16)
        return {"input_values": sound, "labels": torch.zeros(samples, dtype=torch.int64)}

    if main not in {"input_ids", "pixel_values", "input_features", "input_values"}:
        raise LMSError(
            f"the inputs of {type(model).__name__} ({main}) are not known here; write a function "
            "that makes a step, and give it as MODULE:FUNCTION"
        )
    return make


def _has_words(model: nn.Module) -> bool:
    """Whether it gives scores of words, for which there is a loss."""
    return type(model).__name__.endswith(("LMHeadModel", "LM", "ConditionalGeneration"))


def _loss(output: Any) -> Tensor:
    """The model's own, or a mean of its first result."""
    if (loss := getattr(output, "loss", None)) is not None:
        return loss
    first = next(value for value in output.values() if isinstance(value, Tensor))
    return first.float().square().mean()


def _with_memory(model: Any) -> Any:
    """The same model with tensors that take memory, whatever is shared in it."""
    made = dict[int, Tensor]()

    def with_memory(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            new = torch.empty(tensor.shape, dtype=tensor.dtype)
            is_parameter = isinstance(tensor, nn.Parameter)
            made[id(tensor)] = nn.Parameter(new, tensor.requires_grad) if is_parameter else new
        return made[id(tensor)]

    def copied(module: nn.Module, known: dict[int, nn.Module]) -> nn.Module:
        if id(module) not in known:
            known[id(module)] = new = module.__new__(type(module))
            new.__dict__ = module.__dict__.copy()
            for table in ("_parameters", "_buffers"):
                entries = getattr(module, table).items()
                filled = {key: None if t is None else with_memory(t) for key, t in entries}
                new.__dict__[table] = filled
            children = module._modules.items()
            new.__dict__["_modules"] = {
                key: None if child is None else copied(child, known) for key, child in children
            }
        return known[id(module)]

    return copied(model, {})
