"""The operations that give the same bits when they are computed again on the same bytes."""

from __future__ import annotations

from typing import Any

import torch

#: Operations of aten's that are not element by element, and yet deterministic.
_DETERMINISTIC = frozenset(
    (
        *("_softmax", "_log_softmax", "native_layer_norm", "_fused_rms_norm", "native_group_norm"),
        *("mm", "addmm", "bmm", "baddbmm", "convolution", "_convolution"),
        *("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"),
        *("mean", "sum", "amax", "amin", "var_mean", "linalg_vector_norm", "embedding"),
        *("_to_copy", "clone", "copy_", "copy", "cat", "stack", "index_select", "gather", "flip"),
        *("roll", "repeat", "tril", "triu", "constant_pad_nd", "upsample_nearest2d"),
        *("fill_", "zero_", "full", "zeros", "ones", "empty", "arange", "scalar_tensor"),
        *("full_like", "zeros_like", "ones_like", "empty_like", "empty_strided", "new_empty"),
        *("new_zeros", "new_ones", "new_full", "empty_permuted"),
    )
)
#: Random ones, which are repeated with the generator in the state that it had.
_SEEDED = frozenset(("native_dropout", "bernoulli", "bernoulli_", "rand_like", "randn_like"))
#: Normalisations that change their running statistics, arguments 3 and 4, if argument 5 says so.
_NORMALISATIONS = frozenset(
    (
        *("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"),
        *("_batch_norm_with_update", "_native_batch_norm_legit"),
    )
)
#: Arguments of theirs that hold the running statistics.
STATISTICS = (3, 4)
#: Operations of these namespaces write into their arguments, whatever their schemas say.
COMMUNICATION = frozenset(("c10d", "fsdp"))
#: The libraries and operations that multiply with a precision of their own.
_PRECISIONS = (("cuda", "matmul"), ("cuda", "conv"), ("mkldnn", "matmul"), ("mkldnn", "conv"))


def is_seeded(operation: Any) -> bool:
    """Whether an operation draws random numbers and can be repeated."""
    return _name(operation) in _SEEDED


def changes_statistics(operation: Any, args: tuple[Any, ...]) -> bool:
    """Whether it is a normalisation that trains: its result does not depend on the statistics."""
    if operation.namespace != "aten" or _name(operation) not in _NORMALISATIONS:
        return False
    # The one that always trains has no such argument.
    return _name(operation) == "_batch_norm_with_update" or (len(args) > 5 and args[5] is True)


def is_repeatable(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation may be computed again: aten's, and known to give the same bits."""
    if operation.namespace != "aten" or kwargs.get("generator") is not None:
        return False
    name = _name(operation)
    if name in _SEEDED or changes_statistics(operation, args):
        return True
    if torch.Tag.nondeterministic_seeded in operation.tags:
        return False
    return name in _DETERMINISTIC or torch.Tag.pointwise in operation.tags


def numerics() -> tuple[object, ...]:
    """The settings of torch's that results depend on; that of the CPU first."""
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    # `allow_tf32` raises where a program has set `fp32_precision`; that tells of either.
    precision = torch._C._get_fp32_precision_getter
    return (
        *(torch.get_num_threads(), cuda.allow_fp16_reduced_precision_reduction),
        *(cuda.allow_bf16_reduced_precision_reduction, cudnn.enabled),
        *(cudnn.benchmark, cudnn.deterministic, torch._C._get_mkldnn_enabled()),
        *(precision(*place) for place in _PRECISIONS),
        *(torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype()),
    )


def _name(operation: Any) -> str:
    return str(operation.overloadpacket.__name__)
