"""LMS inside torch.compile: compiled graphs move their activations by themselves.

    with lms.offload_compiled("2GiB"):
        step()                     # graphs compiled inside move at least so much, if they can

A compiled graph saves all its activations at the end of its forward, so hooks on saved tensors come
too late to overlap. Here the activations with the longest time until their use are marked before
the graph is split, and torch's own activation offloading moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._functorch import config

from lms.errors import LMSError
from lms.sizes import DEFAULT_SMALLEST, Size, parse_size


def _bytes(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def mark_activations(graph: fx.GraphModule, wanted: int, smallest: int) -> int:
    """Marks activations of a joint graph (forward and backward in one) for offloading.

    Args:
        wanted: bytes; the ones with the longest time until their last use come first.
        smallest: those of fewer bytes stay.

    Returns:
        Bytes marked; fewer than wanted if there are no more.
    """
    number_of = {node: number for number, node in enumerate(graph.graph.nodes)}
    backward = _after_tangents(graph)
    found = []
    for node, number in number_of.items():
        if node.op != "call_function" or node in backward or _bytes(node) < smallest:
            continue
        later = [number_of[user] for user in node.users if user in backward]
        if later:
            found.append((min(later) - number, number, node))
    marked = 0
    for _, _, node in sorted(found, key=lambda item: (-item[0], item[1])):
        if marked >= wanted:
            break
        node.meta["should_offload"] = True
        marked += _bytes(node)
    return marked


def _after_tangents(graph: fx.GraphModule) -> set[fx.Node]:
    """All that depends on the gradients that come in."""
    found: set[fx.Node] = set()
    for node in graph.graph.nodes:
        if (node.op == "placeholder" and str(node.target).startswith("tangents")) or any(
            source in found for source in node.all_input_nodes
        ):
            found.add(node)
    return found


@contextmanager
def offload_compiled(wanted: Size, *, smallest: Size = DEFAULT_SMALLEST) -> Iterator[list[int]]:
    """Has graphs that torch.compile makes inside move activations to the host.

    Args:
        wanted: bytes that should leave in each graph.
        smallest: activations of fewer bytes stay.

    Yields:
        A list that gets the bytes marked in each graph, in the order of compiling.

    Raises:
        LimitError: a size makes no sense.
        LMSError: another pass over joint graphs is installed already.
    """
    size, least = parse_size(wanted, "wanted"), parse_size(smallest, "smallest")
    if config.joint_custom_pass is not None:
        raise LMSError(
            "torch._functorch.config.joint_custom_pass is set already, and there is only one: LMS "
            "cannot mark activations beside it"
        )
    marked: list[int] = []

    def run(graph: fx.GraphModule, _inputs: Any) -> fx.GraphModule:
        marked.append(mark_activations(graph, size, least))
        return graph

    on_gpu = torch.cuda.is_available()
    joint_pass: Callable[[fx.GraphModule, Any], fx.GraphModule] = run
    with config.patch(
        joint_custom_pass=joint_pass,
        enable_autograd_cache=False,  # its key knows neither the pass nor the sizes
        enable_activation_offloading=True,
        activation_offload_separate_stream=on_gpu,
        activation_offload_sink_wait=on_gpu,
        activation_reload_prefetch=on_gpu,
    ):
        yield marked
