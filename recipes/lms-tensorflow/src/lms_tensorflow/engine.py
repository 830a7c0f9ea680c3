"""Plans and rewrites the graphs that TensorFlow makes ready while an LMS is active."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from lms_tensorflow import plugin
from lms_tensorflow.devices import Devices
from lms_tensorflow.errors import LmsError
from lms_tensorflow.graph import Graph
from lms_tensorflow.options import Options
from lms_tensorflow.plan import Plan, make_plan
from lms_tensorflow.rewrite import check_batch, is_rewritten, refusal, refuse, rewrite
from lms_tensorflow.rounds import Rounds, rounds_now
from lms_tensorflow.sizes import Sizes

#: Numbers of refused graphs, in all of the process: a graph outlives the LMS that refused it.
_numbers = itertools.count(1)


class Engine:
    """Has the graphs between `start` and `stop`.

    Attributes:
        plans: of each graph seen that has something on the device, in their order.
        refused: why graphs were refused, by number; running one fails with its number.
        learning: whether a graph was planned without knowing the size of its batch.
        open_batch: whether a graph was planned for a batch whose size it does not know itself.
        shown: how many graphs with something on the device TensorFlow has shown, since `learned`.
    """

    def __init__(self, options: Options, devices: Devices) -> None:
        self.devices = devices
        self._given = options
        self.reset()
        self._can_learn = False
        self._limit: int | None = None
        self._rounds = Rounds()
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forget all graphs, and all that was learned of them."""
        self.options = self._given
        self.plans: list[Plan] = []
        self.refused: dict[int, LmsError] = {}
        self.learning = self.open_batch = False
        self.shown = 0

    def configure(self, **options: Any) -> None:
        """Take other values of some options, and forget all graphs.

        Raises:
            OptionError: a value that an option cannot have.
        """
        self._given = dataclasses.replace(self._given, **options)
        self.reset()

    def prepare(self, can_learn: bool = False) -> None:
        """See whether graphs can be planned as the options say.

        Args:
            can_learn: the first step may run with an unknown batch, and all of it swapped: it
                runs a second time with `learned`.

        Raises:
            LmsError: the plugin cannot be loaded, or TensorFlow's optimizers are switched off.
            OptionError: a device is not there, or a limit is needed.
        """
        plugin.load(self.devices.type)
        self.devices.check()
        self._limit = self.devices.limit(self.options)
        self._can_learn = can_learn
        self._rounds = rounds_now()

    def start(self) -> None:
        """Take the graphs from now on.

        Raises:
            LmsError: another engine has them.
        """
        plugin.start(self.optimize)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Take the graphs that are made ready inside; refused ones fail by their own error.

        Raises:
            LmsError: another engine has the graphs, or one was refused.
        """
        self.start()
        try:
            yield
        except tf.errors.OpError as error:
            reason = self.reason(error)
            if reason is None:
                raise
            raise reason from None
        finally:
            self.stop()

    def reason(self, error: tf.errors.OpError) -> LmsError | None:
        """Why a graph was refused, if that is what made it fail."""
        number = refusal(error.message)
        return None if number is None else self.refused.get(number)

    def stop(self) -> None:
        """Leave graphs alone again."""
        plugin.stop(self.optimize)

    def learned(self, batch_size: int) -> None:
        """Plan again, with a batch whose size is known now."""
        self.options = dataclasses.replace(self.options, batch_size=batch_size)
        self.learning = False
        self.plans.clear()
        self.shown = 0

    def optimize(self, serialized: bytes, round_: int) -> bytes | None:
        """The function that the plugin calls with each graph; None leaves the graph as it is."""
        with self._lock:
            graph_def = graph_pb2.GraphDef()
            host = self.devices.host
            failure: LmsError | None = None
            try:
                graph_def.ParseFromString(serialized)
                if not self._rounds.ends_with(round_, len(graph_def.node)):
                    return None
                names = self.devices.in_graph(graph_def)
                if names is None or is_rewritten(graph_def):
                    return None
                host = names[1]
                self.shown += 1
                plan = self._plan(graph_def, *names)
                if not plan.peak_before and not plan.swaps:
                    return None
                self.plans.append(plan)
                rewrite(graph_def, plan)
                if plan.limit and plan.sizes.unknown_inputs:
                    self._check_batch(graph_def, host, int(self.options.batch_size or 0))
            except LmsError as error:
                failure = error
            except Exception as error:  # the caller is C, and must not go on without a plan
                failure = LmsError(f"LMS: cannot plan a graph: {error!r}; please report this")
            if failure is not None:
                number = next(_numbers)
                self.refused[number] = failure
                refuse(graph_def, host, str(failure), number)
            return bytes(graph_def.SerializeToString())

    def _check_batch(self, graph_def: graph_pb2.GraphDef, host: str, batch_size: int) -> None:
        """Let a batch that is larger than planned fail, which could pass the limit."""
        self.open_batch = True
        number = next(_numbers)
        self.refused[number] = LmsError(
            f"LMS: a batch is larger than the {batch_size} that its graph was planned for, so the "
            "limit may not be kept; give the largest as batch_size="
        )
        check_batch(graph_def, host, batch_size, str(self.refused[number]), number)

    def _plan(self, graph_def: graph_pb2.GraphDef, device: str, host: str) -> Plan:
        graph = Graph(graph_def)
        sizes = Sizes(graph, graph_def, self.options.batch_size)
        if sizes.unknown_inputs and self.options.batch_size is None:
            if not self._can_learn:
                raise LmsError(
                    "LMS: the size of the batch is not known before the graph runs; give "
                    "batch_size=, or shapes without None"
                )
            self.learning = True
            return make_plan(graph, sizes, device, host, self.options, None, unknown_too=True)
        return make_plan(graph, sizes, device, host, self.options, self._limit)
