"""Finds the last round of TensorFlow's optimizers over a graph.

The optimizers go over each graph more than once, and LMS stands at the end of each round. Swaps
that LMS put in before the last round would change the work of the others. For example, they order
factors in another way around an operation that waits, and the last bit of the product differs. So
LMS waits for the last round, and the graph computes the same with swaps as without.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

from lms_tensorflow.errors import LmsError

#: TensorFlow's values where its options say nothing.
_ROUNDS, _LEAST = 2, 4


@dataclass(frozen=True, slots=True)
class Rounds:
    """The number of rounds, and the least operations of a graph that gets more than one."""

    count: int = _ROUNDS
    least: int = _LEAST

    def ends_with(self, round_: int, operations: int) -> bool:
        """Whether no other round follows for a graph of so many operations."""
        return round_ >= self.count or operations < self.least


def rounds_now() -> Rounds:
    """The rounds by the options that TensorFlow has now.

    Raises:
        LmsError: TensorFlow's optimizers are switched off.
    """
    serialized = context.context().function_call_options.config_proto_serialized
    config = config_pb2.ConfigProto.FromString(serialized)
    options = config.graph_options.rewrite_options
    if options.disable_meta_optimizer:
        raise LmsError(
            "LMS: TensorFlow's graph optimizers are switched off, and LMS is one of them; switch "
            "them on: tf.config.optimizer.set_experimental_options("
            "{'disable_meta_optimizer': False})"
        )
    return Rounds(options.meta_optimizer_iterations or _ROUNDS, options.min_graph_nodes or _LEAST)
