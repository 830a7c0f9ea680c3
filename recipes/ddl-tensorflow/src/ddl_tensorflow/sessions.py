"""TensorFlow 1's sessions: the first step of a training begins with rank 0's variables.

A session is told apart by what it runs. A step reduces gradients: some operation that it needs is
marked. What sets variables, an initializer or a restored checkpoint, makes the next step a first
one. Ranks do the same steps, so they come to the same conclusion, and no step pays for a question.
The variables go by way of the host's memory: a finalized graph takes no further operations.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ddl
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.client.session import BaseSession

from ddl_tensorflow._wrap import around

_MARK = "_ddl_reduced"
_ALIKE = ("DdlAllgather", "DdlAllreduce", "DdlBroadcast")  # results that all ranks have the same
_RESTORING = ("Restore", "RestoreSlice", "RestoreV2")
_STEP, _SETS, _NEITHER = "step", "sets", "neither"


@functools.cache
def hook() -> None:
    """Change TensorFlow's sessions, once."""
    around(BaseSession, "_do_run", _do_run)
    around(BaseSession, "make_callable", _make_callable)
    around(BaseSession, "_make_callable_from_options", _make_callable_from_options)


def mark(reduced: Any) -> None:
    """Note that a gradient, if there is one, is reduced over the ranks: this is part of a step."""
    for part in _parts(reduced):
        if isinstance(part, tf.__internal__.EagerTensor):
            setattr(part, _MARK, True)
        elif isinstance(part, tf.Tensor) and not _is_marked(part.op):
            part.op._set_attr(_MARK, attr_value_pb2.AttrValue(b=True))  # functions keep it
            graph = part.graph
            graph._ddl_reduced = {part.op.name} | getattr(graph, "_ddl_reduced", set())
            while graph is not None:
                graph._ddl_kinds = getattr(graph, "_ddl_kinds", {})  # of its operations, by name
                graph = getattr(graph, "outer_graph", None)


def are_alike(gradients: Sequence[Any]) -> list[bool]:
    """Which of them all ranks have the same: reduced ones, and what is made of these and constants.

    Gradients that were averaged and then clipped are so. Where that is not certain, the answer is
    no: what is the same on all ranks may be averaged again. All ranks have to ask.
    """
    made_of = [_constants(one) for one in gradients]
    constants = b"".join(constant for one in made_of for constant in one or ())
    are_same = not constants or _is_same(constants)
    return [one is not None and (are_same or not one) for one in made_of]


def _constants(gradient: Any) -> list[bytes] | None:
    """The constants that were put to reduced ones to make this; None where there is more to it."""
    parts = _parts(gradient)
    if any(isinstance(part, tf.__internal__.EagerTensor) for part in parts):
        return [] if all(hasattr(part, _MARK) for part in parts) else None
    pending = [part.op for part in parts if isinstance(part, tf.Tensor)]
    if len(pending) < len(parts):
        return None
    constants = []
    seen = set()
    while pending:
        operation = pending.pop()
        if operation.name in seen or _is_marked(operation) or operation.type in _ALIKE:
            continue
        seen.add(operation.name)
        if operation.type == "Const":
            constants.append(operation.get_attr("value").SerializeToString())
        elif operation.op_def.is_stateful or not operation.inputs:
            return None
        pending.extend(tensor.op for tensor in operation.inputs)
    return constants


def _is_same(text: bytes) -> bool:
    """Whether all ranks have this text."""
    number = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    greatest, least = ddl.allreduce(np.array([number, -number]), "max")
    return bool(greatest == -least)


def _parts(x: Any) -> list[Any]:
    return [x.values, x.indices] if isinstance(x, tf.IndexedSlices) else [x]


def _is_marked(operation: tf.Operation) -> bool:
    return operation.name in getattr(operation.graph, "_ddl_reduced", ())


def _do_run(
    original: Callable[..., Any],
    self: Any,
    handle: Any,
    target_list: Sequence[Any],
    fetch_list: Sequence[Any],
    *rest: Any,
) -> Any:
    _before(self, [*target_list, *(tensor.op for tensor in fetch_list)])
    return original(self, handle, target_list, fetch_list, *rest)


def _make_callable(
    original: Callable[..., Any], self: Any, fetches: Any, *args: Any, **kwargs: Any
) -> Any:
    """With names for its feeds, the callable runs the session, which comes to `_do_run`."""
    made = original(self, fetches, *args, **kwargs)
    elements = [self.graph.as_graph_element(one) for one in tf.nest.flatten(fetches)]
    return _after_checks(self, [getattr(one, "op", one) for one in elements], made)


def _make_callable_from_options(original: Callable[..., Any], self: Any, options: Any) -> Any:
    names = [*options.target, *(name.partition(":")[0] for name in options.fetch)]
    operations = [self.graph.get_operation_by_name(name) for name in names]
    return _after_checks(self, operations, original(self, options))


def _after_checks(
    session: Any, operations: Sequence[Any], made: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(made, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        _before(session, operations)
        return made(*args, **kwargs)

    return call


def _before(session: Any, operations: Iterable[Any]) -> None:
    """Give out rank 0's variables before a first step."""
    known = getattr(session.graph, "_ddl_kinds", None)
    if known is None or session.sess_str:  # nothing is reduced there, or a server runs it
        return
    kinds = {_kind(operation, known) for operation in operations}
    if _STEP in kinds and not getattr(session, "_ddl_has_begun", False):
        try:
            session._ddl_has_begun = True  # what follows runs the session
            _give_out(session)
        except BaseException:
            session._ddl_has_begun = False
            raise
        session._ddl_has_begun = True  # setting variables has put it back
    elif _SETS in kinds:
        session._ddl_has_begun = False


def _kind(operation: Any, known: dict[str, str]) -> str:
    """What running this operation does; the first answer is kept."""
    if operation.name not in known:
        graph = operation.graph
        setting = {one.initializer.name for one in _variables(graph)}
        kind, seen, pending = _NEITHER, {operation}, [operation]
        while pending and kind != _STEP:
            one = pending.pop()
            if _is_marked(one) or any(_reduces(graph, name) for name in _functions(one)):
                kind = _STEP
            elif one.name in setting or one.type in _RESTORING:
                kind = _SETS
            needed = {*(tensor.op for tensor in one.inputs), *one.control_inputs} - seen
            seen |= needed
            pending.extend(needed)
        known[operation.name] = kind
    return known[operation.name]


def _functions(node: Any) -> list[str]:
    """The functions that an operation may call: the branches of tf.cond, for one."""
    attributes = getattr(node, "node_def", node).attr.values()
    return [
        function.name
        for value in attributes
        for function in (value.func, *value.list.func)
        if function.name
    ]


def _reduces(graph: Any, name: str) -> bool:
    """Whether a function, or one that it calls, reduces gradients."""
    if not graph._is_function(name):
        return False
    nodes = graph._get_function(name).definition.node_def
    return any(
        _MARK in node.attr or any(_reduces(graph, one) for one in _functions(node))
        for node in nodes
    )


def _variables(graph: Any) -> list[Any]:
    found = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    return [one for one in found if one.dtype.base_dtype != tf.string]


def _give_out(session: Any) -> None:
    """Set this rank's variables to rank 0's; those that rank 0 has not initialized stay."""
    variables = _variables(session.graph)
    mine = _values(session, variables)
    there = ddl.broadcast(np.array([one is not None for one in mine], np.uint8))
    pending = []
    for variable, value, is_there in zip(variables, mine, there, strict=True):
        if is_there:
            if value is None:
                value = np.zeros(variable.shape, variable.dtype.base_dtype.as_numpy_dtype)
            given = np.array(value, order="C")
            sent = ddl.broadcast(given.reshape(-1).view(np.uint8))
            pending.append((variable.initializer, sent.view(given.dtype).reshape(given.shape)))
    while pending and ddl.rank() != 0:
        # An initial value is fed, and variables may share it.
        now = {assign.inputs[1].ref(): (assign, value) for assign, value in pending}
        feeds = {tensor.deref(): value for tensor, (_, value) in now.items()}
        done = [assign for assign, _ in now.values()]
        session.run(done, feeds)
        pending = [one for one in pending if one[0] not in done]


def _values(session: Any, variables: Sequence[Any]) -> list[Any]:
    """The variables' values; None for those that are not initialized."""
    try:
        return list(session.run(list(variables)))
    except tf.errors.FailedPreconditionError:
        if len(variables) == 1:
            return [None]
    half = len(variables) // 2
    return _values(session, variables[:half]) + _values(session, variables[half:])
