"""The planner on a graph whose bytes are known by hand.

    a -> b -> c -> ... a line of operations, each of `SIZE` bytes and one level after the other

`far` reads what was made at the start of the line at its end.
"""

from __future__ import annotations

from typing import Any

import pytest
from lms_tensorflow.errors import LimitError
from lms_tensorflow.graph import Graph
from lms_tensorflow.options import Options, to_bytes, to_text
from lms_tensorflow.plan import Plan, make_plan
from lms_tensorflow.rewrite import is_rewritten, rewrite
from lms_tensorflow.sizes import Sizes
from tensorflow.core.framework import graph_pb2, types_pb2

DEVICE, HOST = (f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in (0, 1))
SIZE = 256 * 1024
LINE = 20


def line(**far: int) -> graph_pb2.GraphDef:
    """n0 -> n1 -> ... -> n19, where in `far`, "n5"=3 lets n5 read n3 too."""
    graph = graph_pb2.GraphDef()
    shape = graph.node.add(name="shape", op="Const", device=DEVICE)
    shape.attr["dtype"].type = types_pb2.DT_INT32
    shape.attr["value"].tensor.dtype = types_pb2.DT_INT32
    shape.attr["value"].tensor.tensor_shape.dim.add(size=1)
    shape.attr["value"].tensor.int_val.append(SIZE // 4)
    for i in range(LINE):
        node = graph.node.add(name=f"n{i}", op="RandomUniform", device=DEVICE)
        if i == 0:
            node.input.append("shape")
            node.attr["T"].type = types_pb2.DT_INT32
            node.attr["dtype"].type = types_pb2.DT_FLOAT
            continue
        node.op = "Add" if f"n{i}" in far else "Sin"
        node.attr["T"].type = types_pb2.DT_FLOAT
        node.input.append(f"n{i - 1}")
        if f"n{i}" in far:
            node.input.append(f"n{far[f'n{i}']}")
    return graph


def plan_of(graph_def: Any, limit: int | None = None, **options: Any) -> Plan:
    graph = Graph(graph_def)
    sizes = Sizes(graph, graph_def, None)
    return make_plan(graph, sizes, DEVICE, HOST, Options(limit=limit, **options), limit)


def test_the_curve_is_the_sum_of_what_lives() -> None:
    plan = plan_of(line(n19=2), limit=100 * SIZE)
    constant = 4
    # n2 stands at level 3; each lives from its making to the level of its last use
    wanted = [constant + 0 * SIZE, constant + SIZE] + [constant + 2 * SIZE] * 3
    wanted += [constant + 3 * SIZE] * (LINE - 4)
    assert plan.before.tolist() == wanted
    assert plan.swaps == []


def test_what_another_device_sends_takes_memory_and_stays() -> None:
    graph_def = line(n19=2)
    next(node for node in graph_def.node if node.name == "n2").device = HOST
    plan = plan_of(graph_def, swapout_threshold=4, swapin_ahead=1)
    assert plan.swaps == []
    assert plan.kept["another device's"] == (1, SIZE)
    assert plan.before[10] == 4 + 3 * SIZE
    assert plan.before[3] == 4 + 2 * SIZE  # n1 is there until it has been sent


@pytest.mark.parametrize("ahead", [1, 3, 6])
def test_one_late_use_is_one_swap(ahead: int) -> None:
    plan = plan_of(line(n19=2), swapout_threshold=10, swapin_ahead=ahead)
    (swap,) = plan.swaps
    (stretch,) = swap.stretches
    name = plan.graph.operations[stretch.trigger].name
    assert plan.graph.operations[swap.storage.root[0]].name == "n2"
    assert name == f"n{19 - ahead}"
    assert plan.bytes_out == plan.bytes_in == SIZE
    saved = plan.before - plan.after
    # made at level 3, read and copied at 4; n19 at level 20 is its use
    assert saved.tolist() == [SIZE if 5 <= i < 20 - ahead else 0 for i in range(LINE + 1)]


def test_the_threshold_is_the_distance_from_the_making() -> None:
    graph = line(n19=2)
    assert plan_of(graph, swapout_threshold=17).swaps
    assert not plan_of(graph, swapout_threshold=18).swaps


def test_uses_close_to_each_other_share_a_swap_in() -> None:
    graph = line(n12=2, n14=2, n19=2)
    alone = plan_of(graph, swapout_threshold=8, swapin_ahead=1, swapin_groupby=0)
    assert [len(stretch.uses) for stretch in alone.swaps[0].stretches] == [1, 1, 1]
    shared = plan_of(graph, swapout_threshold=8, swapin_ahead=1, swapin_groupby=2)
    assert [len(stretch.uses) for stretch in shared.swaps[0].stretches] == [2, 1]
    assert shared.bytes_in == 2 * SIZE
    assert shared.bytes_out == SIZE


def test_only_what_the_limit_asks_for_is_swapped() -> None:
    graph = line(n19=2, n15=4, n11=6)
    free = plan_of(graph, limit=100 * SIZE)
    assert free.peak_before == 5 * SIZE + 4
    least = plan_of(graph, limit=4 * SIZE + 4)
    assert [least.graph.operations[one.storage.root[0]].name for one in least.swaps] == ["n2"]
    assert least.peak_after == 4 * SIZE + 4
    both = plan_of(graph, limit=3 * SIZE + 4)
    assert len(both.swaps) > 1
    assert both.peak_after == 3 * SIZE + 4


def test_a_limit_holds_operations_to_an_order() -> None:
    graph_def = line(n19=2)
    plan = plan_of(graph_def, limit=3 * SIZE + 4)
    assert plan.order is not None
    assert plan.swaps == []  # the order is enough
    rewrite(graph_def, plan)
    assert Graph(graph_def).last_level == LINE  # nothing waits for itself


def test_what_cannot_pass_the_limit_is_left_alone() -> None:
    assert plan_of(line(n19=2), limit=LINE * SIZE + 4).order is None
    assert plan_of(line(n19=2), limit=LINE * SIZE + 3).order is not None


def wide() -> graph_pb2.GraphDef:
    """Eight lines of two operations from n0, all of which TensorFlow could run at once."""
    graph_def = line()
    del graph_def.node[2:]
    for i in range(8):
        for name, source in ((f"a{i}", "n0"), (f"b{i}", f"a{i}")):
            node = graph_def.node.add(name=name, op="Sin", device=DEVICE, input=[source])
            node.attr["T"].type = types_pb2.DT_FLOAT
    return graph_def


def test_serialization_is_of_the_levels_given() -> None:
    assert plan_of(wide(), serialization=[]).peak_after == 17 * SIZE + 4
    alone = plan_of(wide(), serialization=["2:"])  # the a's are at level 2, the b's at 3
    assert alone.order is not None
    assert len(alone.order.ends) == 16
    assert alone.peak_after == 3 * SIZE + 4  # n0 and a line
    assert len(plan_of(wide(), serialization=["2:3"]).order.ends) == 8
    assert len(plan_of(wide(), serialization=[2, "3"]).order.ends) == 16


@pytest.mark.parametrize(("size", "steps"), [(SIZE, 17), (4 * SIZE, 4), (18 * SIZE, 0)])
def test_serialization_by_size_ends_a_step_after_so_much(size: int, steps: int) -> None:
    plan = plan_of(wide(), serialization_by_size=size)
    assert plan.order is not None
    assert len(plan.order.ends) == steps


def test_a_limit_finds_the_longest_steps_that_keep_it() -> None:
    limit = {n: plan_of(wide(), limit=n * SIZE + 4) for n in (16, 3, 2)}
    assert {n: plan.peak_after for n, plan in limit.items()} == {
        n: min(n, 3) * SIZE + 4 for n in limit
    }
    assert not limit[16].swaps
    assert not limit[3].swaps
    (swap,) = limit[2].swaps  # n0 comes back for each of the a's but the first
    assert len(swap.stretches) == 7
    with pytest.raises(LimitError, match=r"512.0 KiB are needed at least, 4 B more"):
        plan_of(wide(), limit=2 * SIZE)


def test_a_limit_that_cannot_be_kept_names_the_shortfall() -> None:
    with pytest.raises(LimitError) as caught:
        plan_of(line(n19=2), limit=SIZE)
    told = str(caught.value)
    assert told.startswith(
        "LMS: the limit of 256.0 KiB cannot be kept: 768.0 KiB are needed at least, 512.0 KiB more"
    )
    assert "Give a higher limit or a smaller batch" in told


def test_small_tensors_stay() -> None:
    plan = plan_of(line(n19=2), swapout_threshold=10, min_bytes=SIZE + 1)
    assert plan.swaps == []
    assert plan.kept["small"] == (LINE, LINE * SIZE)


def test_a_rewritten_graph_is_known_and_keeps_its_levels() -> None:
    graph_def = line(n19=2, n12=3)
    plan = plan_of(graph_def, swapout_threshold=6, swapin_ahead=2, sync_mode=3)
    assert not is_rewritten(graph_def)
    rewrite(graph_def, plan)
    assert is_rewritten(graph_def)
    after = Graph(graph_def)  # LmsError if anything waited for itself
    nodes = {node.name: node for node in graph_def.node}
    assert list(nodes["n19"].input)[:2] == ["n18", "n2-lms_0_in_20"]
    assert list(nodes["n2-lms_0_in_20"].input) == ["n2-lms_0_out", "^n17"]
    assert {nodes[f"n2-lms_0_{what}"].device for what in ("out", "in_20")} == {HOST}
    level = {one.name: one.level for one in after.operations}
    assert level["n17"] < level["n2-lms_0_in_20"] < level["n19"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("12GiB", 12 << 30), ("500MB", 500 * 10**6), ("1.5k", 1500), ("64 KiB", 65536), (7, 7)],
)
def test_sizes_as_people_write_them(text: Any, size: int) -> None:
    assert to_bytes("limit", text) == size


def test_sizes_as_people_read_them() -> None:
    told = [to_text(size) for size in (5, 1536, 3 << 20, 5 << 30, 2 << 40)]
    assert told == ["5 B", "1.5 KiB", "3.0 MiB", "5.0 GiB", "2.0 TiB"]
