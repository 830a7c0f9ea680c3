"""Runs a graph as TensorFlow might at worst: anything that is ready, any number at once.

An operation takes the memory of its results when it starts, and lets go of what it reads when it
ends; what another device reads is there until that has read it, and what it sends from when it is
made.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from lms_tensorflow.graph import Graph, Tensor


class Executor:
    """Of a rewritten graph, with the sizes that its plan knows."""

    def __init__(self, graph_def: Any, plan: Any) -> None:
        self.graph, self.device = Graph(graph_def), plan.device
        self.start_with = plan.sizes.variables.get(plan.device, 0)
        self.bytes: dict[Tensor, int] = {}
        for (i, port), size in plan.sizes.of.items():
            if size.numeric:
                self.bytes[self.graph.index[plan.graph.operations[i].name], port] = size.bytes
        for swap in plan.swaps:
            for one in swap.stretches:
                for source in one.sources():
                    stem = f"{plan.graph.operations[source[0]].name}-lms_{source[1]}_"
                    for what in ("out", f"in_{one.first}"):
                        self.bytes[self.graph.index[stem + what], 0] = plan.sizes.of[source].bytes
        self.makes: dict[int, list[Tensor]] = defaultdict(list)
        self.sends: dict[int, list[Tensor]] = defaultdict(list)
        self.holders: dict[Tensor, set[int]] = defaultdict(set)
        self.holds: dict[int, list[Tensor]] = defaultdict(list)
        self._connect()

    def _connect(self) -> None:
        operations = self.graph.operations
        for tensor in self.bytes:
            readers = self.graph.readers.get(tensor, [])
            if operations[tensor[0]].device == self.device:
                root = self.graph.root(tensor)
                if root in self.bytes:  # it is not a variable
                    self.holders[root].update([root[0], tensor[0], *readers])
            elif here := [i for i in readers if operations[i].device == self.device]:
                self.holders[tensor].update(here)
        for root, holders in self.holders.items():
            maker = operations[root[0]]
            (self.makes if maker.device == self.device else self.sends)[root[0]].append(root)
            for i in holders:
                self.holds[i].append(root)
            if maker.op in ("Const", "_Arg") or any(operations[i].op == "_Retval" for i in holders):
                holders.add(-1)  # for good

    def peak(self, seed: int) -> int:
        """The most that is on the device: by chance if the seed is odd, or the largest first."""
        pick, operations = random.Random(seed), self.graph.operations
        missing = [len(set(self.graph.sources(one))) for one in operations]
        after: dict[int, list[int]] = defaultdict(list)
        for i, one in enumerate(operations):
            for source in set(self.graph.sources(one)):
                after[source].append(i)
        makes = [
            sum(self.bytes[root] for root in self.makes.get(i, ())) for i in range(len(operations))
        ]
        left = {root: len(holders) for root, holders in self.holders.items()}
        ready, running = [i for i, count in enumerate(missing) if not count], list[int]()
        now = peak = self.start_with
        while ready or running:
            if ready and (not running or pick.random() < 0.7):
                at = pick.randrange(len(ready))
                if seed % 2 == 0:
                    at = max(range(len(ready)), key=lambda one: makes[ready[one]])
                running.append(ready.pop(at))
                now += makes[running[-1]]
            else:
                i = running.pop(pick.randrange(len(running)))
                now += sum(self.bytes[root] for root in self.sends.get(i, ()))
                peak = max(peak, now)
                for root in self.holds.get(i, ()):
                    left[root] -= 1
                    now -= 0 if left[root] else self.bytes[root]
                for following in after[i]:
                    missing[following] -= 1
                    if not missing[following]:
                        ready.append(following)
            peak = max(peak, now)
        assert not any(missing), "something never ran"
        return peak
