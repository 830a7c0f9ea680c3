"""The report of LMS, as text and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lms_tensorflow.graph import Graph, Tensor
from lms_tensorflow.options import SYNC_MODES, to_text
from lms_tensorflow.plan import Plan, Swap

#: Operations that run functions.
CALLS = frozenset(
    {"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf"}
    | {"Case", "StatelessCase", "RemoteCall", "SymbolicGradient"}
)

#: The number of swaps that the text names; the data has all.
SHOWN = 12


def to_data(plans: Sequence[Plan]) -> dict[str, Any]:
    """All plans, of things that JSON has."""
    return {"graphs": [_plan(plan) for plan in plans]}


def text_of(plans: Sequence[Plan]) -> str:
    """The plan of the graph that needs the most memory, and a line on the others."""
    if not plans:
        return (
            "LMS has seen no graph on its device. A graph is seen when it first runs while LMS is "
            "active, and never with jit_compile=True or run_eagerly=True."
        )
    largest = max(plans, key=lambda plan: plan.peak_before)
    lines = _lines(largest)
    others = [plan for plan in plans if plan is not largest]
    if others:
        moved = sum(plan.bytes_out for plan in others)
        peak = max(plan.peak_after for plan in others)
        lines.append(
            f"LMS: {len(others)} smaller graphs, of at most {to_text(peak)}; "
            f"{to_text(moved)} of them are swapped"
        )
    return "\n".join(lines)


def _lines(plan: Plan) -> list[str]:
    far = plan.distances
    size = len(plan.graph.operations)
    limit = "no limit" if plan.limit is None else f"limit {to_text(plan.limit)}"
    lines = [
        f"LMS: {_short(plan.device)} -> {_short(plan.host)}, {limit}, a graph of {size} operations",
        f"  peak memory, predicted: {to_text(plan.peak_before)} without LMS, "
        f"{to_text(plan.peak_after)} with it",
        f"  variables among it:     {to_text(plan.sizes.variables.get(plan.device, 0))}",
        f"  swapped: {len(plan.swaps)} tensors, {to_text(plan.bytes_out)} out and "
        f"{to_text(plan.bytes_in)} in per step",
        f"  swapout_threshold {far.threshold}, swapin_ahead {far.ahead}, swapin_groupby "
        f"{far.groupby}, sync_mode {plan.options.sync_mode}: "
        f"{SYNC_MODES[plan.options.sync_mode]}",
        f"  {_order(plan)}",
    ]
    lines += _notes(plan)
    if estimated := plan.sizes.estimated(plan.device):
        lines.append(f"  sizes estimated, from their operations' inputs: {estimated} tensors")
    for why, (count, total) in sorted(plan.kept.items(), key=lambda item: -item[1][1]):
        lines.append(f"  stays, {why}: {count} tensors, {to_text(total)}")
    largest = sorted(plan.swaps, key=lambda swap: -swap.storage.bytes)
    for swap in largest[:SHOWN]:
        back = ", ".join(f"at {one.trigger_level} for {one.first}" for one in swap.stretches)
        lines.append(
            f"  {to_text(swap.storage.bytes):>10}  {_name(plan.graph, swap.storage.root)}: made at "
            f"{'step' if plan.order else 'level'} {swap.storage.made}, back {back}"
        )
    if len(largest) > SHOWN:
        lines.append(f"  ... and {len(largest) - SHOWN} smaller ones")
    return lines


def _order(plan: Plan) -> str:
    if plan.order is None:
        return "order: TensorFlow's own" + (", as it cannot pass the limit" if plan.limit else "")
    return f"order: {len(plan.order.ends) + 1} steps, {len(plan.order.edges)} control edges"


def _notes(plan: Plan) -> list[str]:
    """The parts of a graph that the prediction does not count."""
    here = [one for one in plan.graph.operations if one.device == plan.device]
    lists = sum(one.op.startswith("TensorList") for one in here)
    calls = sum(one.op in CALLS for one in here)
    found = {
        "storage of a size that nobody knows": plan.unknown,
        "operations on lists of tensors, which grow in loops": lists,
        "calls of functions that TensorFlow does not put in place": calls,
    }
    return [f"  not counted: {count} {what}" for what, count in found.items() if count]


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "device": _short(plan.device),
        "host": _short(plan.host),
        "operations": len(plan.graph.operations),
        "levels": plan.graph.last_level + 1,
        "steps": None if plan.order is None else len(plan.order.ends) + 1,
        "control_edges": 0 if plan.order is None else len(plan.order.edges),
        "limit_bytes": plan.limit,
        "variables_bytes": plan.sizes.variables.get(plan.device, 0),
        "peak_bytes_before": plan.peak_before,
        "peak_bytes_after": plan.peak_after,
        "swapped_out_bytes": plan.bytes_out,
        "swapped_in_bytes": plan.bytes_in,
        "swapout_threshold": plan.distances.threshold,
        "swapin_ahead": plan.distances.ahead,
        "swapin_groupby": plan.distances.groupby,
        "sync_mode": plan.options.sync_mode,
        "batch_size": plan.options.batch_size,
        "estimated_sizes": plan.sizes.estimated(plan.device),
        "swaps": [_swap(plan, swap) for swap in plan.swaps],
        "kept": {
            why: {"tensors": count, "bytes": total} for why, (count, total) in plan.kept.items()
        },
    }


def _swap(plan: Plan, swap: Swap) -> dict[str, Any]:
    operations = plan.graph.operations
    return {
        "tensor": _name(plan.graph, swap.storage.root),
        "operation": operations[swap.storage.root[0]].op,
        "bytes": swap.storage.bytes,
        "made_at": swap.storage.made,
        "back": [
            {
                "trigger": operations[one.trigger].name,
                "at": one.trigger_level,
                "after": one.after,
                "first_use": one.first,
                "last_use": one.last,
                "readers": sorted({operations[use.reader].name for use in one.served()}),
                "tensors": [_name(plan.graph, source) for source in one.sources()],
            }
            for one in swap.stretches
        ],
    }


def _name(graph: Graph, tensor: Tensor) -> str:
    return f"{graph.operations[tensor[0]].name}:{tensor[1]}"


def _short(device: str) -> str:
    return device.rpartition("/device:")[2]
