"""The states of a program's objects, as plain values, and back.

An object has `state_dict` and `load_state_dict`, or is a Keras model, or a State of Horovod's
elastic mode.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ddl.checkpoint.errors import CheckpointError

Objects = Mapping[str, Any]


def check_objects(objects: Objects) -> None:
    """Raise CheckpointError for objects whose state we do not know how to get."""
    for name, thing in objects.items():
        if not (_has_state_dict(thing) or _is_keras_model(thing) or _is_horovod_state(thing)):
            raise CheckpointError(
                f"{name}: a {type(thing).__name__} has no state_dict and load_state_dict, and is "
                "neither a Keras model nor a State of Horovod"
            )


def state_of(thing: Any) -> Any:
    """The state of an object as plain values, arrays and tensors."""
    if _is_keras_model(thing):
        return _keras_state(thing)
    if _is_horovod_state(thing):
        return {name: _part_of(getattr(thing, name)) for name in _horovod_names(thing)}
    return thing.state_dict()


def gather(objects: Objects) -> None:
    """Have optimizers that keep a part of their state on each rank bring it together; collective.

    The first rank gets it. Such an optimizer is torch's ZeroRedundancyOptimizer.
    """
    for thing in objects.values():
        if hasattr(thing, "consolidate_state_dict"):
            thing.consolidate_state_dict(0)


def load_state(name: str, thing: Any, state: Any) -> None:
    """Give an object its state.

    Raises:
        CheckpointError: the state is of another object; it names the argument `name`. An object
            that raises this itself has said all.
    """
    try:
        if _is_keras_model(thing):
            _load_keras(thing, state)
        elif _is_horovod_state(thing):
            _load_horovod(thing, state)
        else:
            thing.load_state_dict(state)
    except CheckpointError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        text = " ".join(str(error).split())
        raise CheckpointError(
            f"{name}: the checkpoint is of another {type(thing).__name__} ({text}); make it as the "
            "program did that saved, or give another folder"
        ) from None


def random_states() -> dict[str, Any]:
    """The states of the random numbers of Python, NumPy, and torch where it is loaded."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (str(kind), [int(key) for key in keys], *rest),
    }
    torch = sys.modules.get("torch")
    if torch:
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["cuda"] = torch.cuda.get_rng_state()
    return found


def set_random_states(states: Mapping[str, Any]) -> None:
    """Go on with the random numbers of `random_states`."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))
    torch = sys.modules.get("torch")
    if torch and "torch" in states:
        torch.set_rng_state(states["torch"])
    if torch and "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _has_state_dict(thing: Any) -> bool:
    return hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")


def _is_keras_model(thing: Any) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(thing, keras.Model)


def _is_horovod_state(thing: Any) -> bool:
    elastic = sys.modules.get("horovod.common.elastic")
    return elastic is not None and isinstance(thing, elastic.ObjectState)


def _keras_state(model: Any) -> dict[str, Any]:
    optimizer = getattr(model, "optimizer", None)
    return {
        "variables": [_array(variable) for variable in model.variables],
        "optimizer": [_array(variable) for variable in optimizer.variables] if optimizer else [],
    }


def _array(variable: Any) -> np.ndarray:
    import keras

    return np.array(keras.ops.convert_to_numpy(variable))


def _load_keras(model: Any, state: Mapping[str, Any]) -> None:
    optimizer = getattr(model, "optimizer", None)
    if optimizer and not optimizer.built:
        optimizer.build(model.trainable_variables)
    for what, variables in (
        ("variables", model.variables),
        ("optimizer", optimizer.variables if optimizer else []),
    ):
        if len(variables) != len(state[what]):
            raise ValueError(f"{len(state[what])} {what}, and not {len(variables)}")
        for variable, value in zip(variables, state[what], strict=True):
            array = np.asarray(value)
            if array.dtype.kind == "V":  # bfloat16, which NumPy's files do not know
                array = array.view(_array(variable).dtype)
            variable.assign(array)


def _horovod_names(state: Any) -> list[str]:
    return [*getattr(state, "_handlers", {}), *state._saved_state]


def _part_of(value: Any) -> Any:
    if _is_keras_model(value):
        return _keras_state(value)
    return value.state_dict() if _has_state_dict(value) else value


def _load_horovod(state: Any, saved: Mapping[str, Any]) -> None:
    names = _horovod_names(state)
    if set(names) != set(saved):
        raise ValueError(f"attributes {', '.join(saved)}, and not {', '.join(names)}")
    for name in names:
        value = getattr(state, name)
        if _is_keras_model(value):
            _load_keras(value, saved[name])
        elif _has_state_dict(value):
            value.load_state_dict(saved[name])
        else:
            setattr(state, name, saved[name])
    state.save()  # what Horovod itself goes back to after an error
