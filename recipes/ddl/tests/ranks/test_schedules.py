"""The library's schedules on trees drawn by hypothesis, in one process, as `ddl-sim` sees them.

That every element is summed once on every host is asked of the plans themselves, in plan_test.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from ddl import _core
from hypothesis import given, settings
from hypothesis import strategies as st

SCHEDULES = ("auto", "direct", "halving", "radix:3", "radix:8")
# Gbit/s and us; None: not known.
BANDWIDTHS = st.sampled_from([0.1, 0.2, 1.0, 2.5, 10.0, 100.0])
LATENCIES = st.sampled_from([1.0, 5.0, 30.0, 200.0])
sizes = st.integers(1, 64 << 20)


@dataclass
class Group:
    """A node of a topology file; no children: a host."""

    bandwidth: float
    latency: float
    children: list[Group]


def groups(deep: int) -> st.SearchStrategy[Group]:
    host = st.builds(Group, BANDWIDTHS, LATENCIES, st.just([]))
    if deep == 0:
        return host
    children = st.lists(st.one_of(host, groups(deep - 1)), min_size=1, max_size=4)
    return st.builds(Group, BANDWIDTHS, LATENCIES, children)


# Up to three levels, unequal ones among them, links of any speeds.
trees = st.lists(groups(2), min_size=1, max_size=4).map(lambda found: Group(1, 1, found))


def lines(group: Group, names: Iterator[str], indent: str = "") -> Iterator[str]:
    """The children's entries; hosts take the next name."""
    yield f"{indent}children:"
    for child in group.children:
        link = f"bandwidth: {child.bandwidth}, latency: {child.latency}"
        if child.children:
            yield f"{indent}- bandwidth: {child.bandwidth}"
            yield f"{indent}  latency: {child.latency}"
            yield from lines(child, names, indent + "  ")
        else:
            yield f"{indent}- {{host: {next(names)}, {link}}}"


def number_of_hosts(group: Group) -> int:
    return sum(map(number_of_hosts, group.children)) if group.children else 1


def make(group: Group, order: list[int] | None = None) -> Any:
    """The tree; with an order, of a job whose ranks stand on the hosts in it."""
    names = [f"n{i}" for i in range(number_of_hosts(group))]
    text = "\n".join(lines(group, iter(names))) + "\n"
    return _core.parse_tree(text, "drawn.yaml", [names[i] for i in order] if order else None)


def predict(tree: Any, nbytes: int, schedule: str) -> Any:
    chunking = _core.usual_chunking(tree, 1)
    return _core.predict(tree, nbytes, schedule, chunking, tree.usual_wire())[1]


@settings(deadline=None, max_examples=200)
@given(trees, sizes, st.sampled_from(SCHEDULES))
def test_a_prediction_stands_on_the_bound(group: Group, nbytes: int, schedule: str) -> None:
    tree = make(group)
    found = predict(tree, nbytes, schedule)
    assert tree.num_hosts() == number_of_hosts(group)
    assert found.seconds >= found.bound * (1 - 1e-9)
    assert found.chunks * found.chunk >= nbytes
    assert (found.messages > 0) == (tree.num_hosts() > 1)


@settings(deadline=None, max_examples=200)
@given(trees, sizes, st.sampled_from(SCHEDULES), st.randoms(use_true_random=False))
def test_the_order_of_the_ranks_does_not_matter(
    group: Group, nbytes: int, schedule: str, random: Any
) -> None:
    order = list(range(number_of_hosts(group)))
    random.shuffle(order)
    one, other = (predict(make(group, o), nbytes, schedule) for o in (None, order))
    assert other.bound == pytest.approx(one.bound)
    assert other.steps == one.steps
    assert other.messages == one.messages
    assert other.seconds == pytest.approx(one.seconds, rel=0.02)


@settings(deadline=None, max_examples=100)
@given(trees, sizes)
def test_faster_links_never_raise_the_bound(group: Group, nbytes: int) -> None:
    def faster(node: Group) -> Group:
        return Group(2 * node.bandwidth, node.latency / 2, [faster(c) for c in node.children])

    before, after = (predict(make(g), nbytes, "direct") for g in (group, faster(group)))
    assert after.bound <= before.bound * (1 + 1e-9)
