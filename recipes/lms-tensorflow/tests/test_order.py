"""What really runs: the partitions of the graph, the order of the copies, and their memory."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.framework import graph_pb2
from traces import Event, operations

#: TensorFlow's allocator for CPUs has another one for what is smaller, which traces nothing.
TRACED = 256 * 1024
HERE = Path(__file__).parent


class Step:
    """A profiled step, with and without LMS."""

    def __init__(self, folder: Path) -> None:
        environment = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "1"}
        program = [sys.executable, HERE / "profiled.py", folder]
        subprocess.run(program, env=environment, timeout=300, check=True)
        result = pickle.loads((folder / "step.pickle").read_bytes())
        self.runs: list[list[Event]] = result["runs"]
        self.without: list[list[Event]] = result["without"]
        self.events = self.runs[0]
        self.partitions = [graph_pb2.GraphDef.FromString(one) for one in result["partitions"]]
        graphs = json.loads(result["plans"])["graphs"]
        self.plan: dict[str, Any] = max(graphs, key=lambda graph: graph["peak_bytes_before"])


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Step:
    return Step(tmp_path_factory.mktemp("profile"))


def test_what_is_swapped_leaves_the_device_and_comes_back(step: Step) -> None:
    """Each tensor is sent to the host's partition and received, and the other way round."""
    nodes = {node.name: node for graph in step.partitions for node in graph.node}
    readers: dict[str, set[str]] = {}
    for node in nodes.values():
        for text in node.input:
            readers.setdefault(text.partition(":")[0], set()).add(node.op)
    for swap in step.plan["swaps"]:
        out = nodes[_name(swap["tensor"]) + "-lms_0_out"]
        assert out.device.endswith("CPU:1")
        assert nodes[out.input[0].partition(":")[0]].op == "_Recv"
        for back in swap["back"]:
            came = nodes[f"{_name(swap['tensor'])}-lms_0_in_{back['first_use']}"]
            assert came.device.endswith("CPU:1")
            assert readers[came.name] == {"_Send"}
            assert any(text.startswith("^") for text in came.input)


def test_each_comes_back_after_its_trigger_and_before_its_use(step: Step) -> None:
    runs = operations(step.events)
    checked = 0
    for swap in step.plan["swaps"]:
        out = runs[_name(swap["tensor"]) + "-lms_0_out"]
        if swap["operation"] != "IteratorGetNext":  # which the profiler names in its own way
            assert runs[_name(swap["tensor"])].end <= out.start
        for back in swap["back"]:
            came = runs[f"{_name(swap['tensor'])}-lms_0_in_{back['first_use']}"]
            assert out.end <= came.start
            assert runs[back["trigger"]].end <= came.start
            for reader in back["readers"]:
                if reader in runs:  # TensorFlow makes constants of those that read a shape only
                    assert came.end <= runs[reader].start
                    checked += 1
    assert checked >= len(step.plan["swaps"]) > 3


def test_predicted_bytes_are_those_that_the_allocator_gave(step: Step) -> None:
    """For each swapped tensor, its copies on the way there and back."""
    asked: dict[str, set[int]] = {}
    for event in step.events:
        if event.name == "MemoryAllocation":
            made = asked.setdefault(str(event.stats.get("tf_op")), set())
            made.add(event.stats["requested_bytes"])
    checked = 0
    for swap in step.plan["swaps"]:
        if swap["bytes"] >= TRACED:
            name = _name(swap["tensor"])
            for copy in ("out", *(f"in_{back['first_use']}" for back in swap["back"])):
                assert asked[f"{name}-lms_0_{copy}"] == {swap["bytes"]}
            checked += swap["bytes"]
    assert step.plan["swapped_out_bytes"] == sum(swap["bytes"] for swap in step.plan["swaps"])
    assert checked > step.plan["swapped_out_bytes"] / 2


def test_the_peak_keeps_the_limit(step: Step) -> None:
    """What the device really held, by the allocator's trace."""
    variables = step.plan["variables_bytes"]
    limit = step.plan["limit_bytes"]
    assert step.plan["peak_bytes_after"] <= limit
    for events in step.runs:
        assert _peak(events) + variables <= limit
    assert min(map(_peak, step.without)) + variables > limit


def _peak(events: list[Event]) -> int:
    """Bytes on the device: all but what was swapped out, of which the host has a copy."""
    live: dict[int, int] = {}  # by address
    peak = 0
    for event in events:
        address = event.stats.get("addr")
        if event.name == "MemoryAllocation":
            if not str(event.stats.get("tf_op")).endswith("_out"):
                live[address] = event.stats["requested_bytes"]
        elif event.name == "MemoryDeallocation":
            live.pop(address, None)
        peak = max(peak, sum(live.values()))
    return peak


def _name(tensor: str) -> str:
    return tensor.removesuffix(":0")
