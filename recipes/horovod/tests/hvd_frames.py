"""PyTorch and TensorFlow behind one face, so that one case tests an operation in all of them.

Arrays go in as float64 and come out as float64; in between stands a tensor of the type that the
case asks for, and it is an error if what comes back has another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from hvd_harness import RANK, Array

Arrays = Array | list[Array]
FLOATS = ("float16", "bfloat16", "float32", "float64")
# Operations whose TensorFlow form takes no name.
NAMELESS = {"grouped_reducescatter"}


class Frame:
    """One framework in one mode.

    Attributes:
        mode: as in the names of the cases.
        hvd: horovod.torch or horovod.tensorflow.
        errors: what a refused operation raises.
        reduced, scattered, moved: the types that allreduce, reducescatter and the others take.
    """

    mode: str
    hvd: ModuleType
    errors: tuple[type[Exception], ...]
    moved: tuple[str, ...] = ("uint8", "int8", "int16", "int32", "int64", *FLOATS, "bool")
    scattered: tuple[str, ...] = ("int32", "int64", *FLOATS)
    reduced: tuple[str, ...]

    def __init__(self) -> None:
        self.case = ""

    def name(self, name: str) -> str:
        return f"{self.mode}.{self.case}.{name}"

    def put(self, array: Array, dtype: str) -> Any:
        raise NotImplementedError

    def get(self, tensor: Any, dtype: str) -> Array:
        raise NotImplementedError

    def run(self, function: Callable[..., Any], *inputs: Any) -> Any:
        return function(*inputs)

    def join(self) -> Any:
        return self.hvd.join()

    def call(
        self, operation: str, name: str, value: Arrays, dtype: str = "float32", **options: Any
    ) -> Any:
        """One operation; its output, or the list of its outputs."""

        def function(inputs: Any) -> Any:
            return self.apply(operation, name, inputs, options)

        output = self.run(function, self.put_all(value, dtype))
        if isinstance(output, (list, tuple)):
            return [self.get(one, dtype) for one in output]
        return self.get(output, dtype)

    def apply(self, operation: str, name: str, inputs: Any, options: dict[str, Any]) -> Any:
        return getattr(self.hvd, operation)(inputs, name=self.name(name), **options)

    def put_all(self, value: Arrays, dtype: str) -> Any:
        if isinstance(value, list):
            return [self.put(one, dtype) for one in value]
        return self.put(value, dtype)

    def alltoall(
        self, name: str, value: Array, splits: list[int], dtype: str = "float32", **options: Any
    ) -> tuple[Array, list[int]]:
        """An alltoall with splits; what came and how many rows of it came from each rank."""

        def function(tensor: Any) -> Any:
            return self.hvd.alltoall(tensor, splits=splits, name=self.name(name), **options)

        output, received = self.run(function, self.put(value, dtype))
        return self.get(output, dtype), [int(n) for n in received.numpy()]

    def gradient(
        self,
        operation: str,
        name: str,
        values: list[Array],
        weigh: Callable[[Array], Array],
        dtype: str = "float32",
        **options: Any,
    ) -> list[Array]:
        """The gradients by the values of the sum of `weigh(output)` * output."""
        raise NotImplementedError


class Torch(Frame):
    """Tensors are on the device that HVD_DEVICE names: `cpu`, or the rank's own by `cuda`."""

    mode = "torch"
    reduced = ("uint8", "int8", "int32", "int64", *FLOATS)

    def __init__(self) -> None:
        super().__init__()
        import horovod.torch as hvd
        import torch

        self.torch, self.hvd = torch, hvd
        self.errors = (hvd.HorovodInternalError, ValueError)
        self.device = os.environ.get("HVD_DEVICE", "cpu")
        if self.device == "cuda":
            torch.cuda.set_device(RANK)

    def put(self, array: Array, dtype: str) -> Any:
        tensor = self.torch.from_numpy(np.array(array)).to(getattr(self.torch, dtype))
        return tensor.to(self.device)

    def join(self) -> Any:
        return self.hvd.join(RANK if self.device == "cuda" else -1)

    def get(self, tensor: Any, dtype: str) -> Array:
        assert tensor.dtype == getattr(self.torch, dtype), (tensor.dtype, dtype)
        assert tensor.device.type == self.device, tensor.device
        return np.asarray(tensor.detach().cpu().double().numpy())

    def gradient(
        self,
        operation: str,
        name: str,
        values: list[Array],
        weigh: Callable[[Array], Array],
        dtype: str = "float32",
        **options: Any,
    ) -> list[Array]:
        inputs = [self.put(value, dtype).requires_grad_() for value in values]
        given = inputs if operation.startswith("grouped") else inputs[0]
        outputs = self.apply(operation, name, given, options)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        outputs = [one for one in outputs if one.dtype.is_floating_point]
        arrays = [np.asarray(one.detach().cpu().double()) for one in outputs]
        loss = sum(
            (one * self.put(weigh(array), dtype)).sum()
            for one, array in zip(outputs, arrays, strict=True)
        )
        loss.backward()
        return [self.get(tensor.grad, dtype) for tensor in inputs]


class Eager(Frame):
    mode = "eager"
    reduced = ("uint8", "int8", "int32", "int64", *FLOATS)

    def __init__(self) -> None:
        super().__init__()
        import horovod.tensorflow as hvd
        import tensorflow as tf

        self.tf, self.hvd = tf, hvd
        self.errors = (tf.errors.OpError, ValueError)

    def put(self, array: Array, dtype: str) -> Any:
        return self.tf.cast(self.tf.constant(array), dtype)

    def get(self, tensor: Any, dtype: str) -> Array:
        assert tensor.dtype.name == dtype, (tensor.dtype, dtype)
        return np.asarray(self.tf.cast(tensor, "float64").numpy())

    def apply(self, operation: str, name: str, inputs: Any, options: dict[str, Any]) -> Any:
        words = {} if operation in NAMELESS else {"name": self.name(name)}
        return getattr(self.hvd, operation)(inputs, **words, **options)

    def gradient(
        self,
        operation: str,
        name: str,
        values: list[Array],
        weigh: Callable[[Array], Array],
        dtype: str = "float32",
        **options: Any,
    ) -> list[Array]:
        def function(inputs: Any) -> Any:
            with self.tf.GradientTape() as tape:
                for one in inputs:
                    tape.watch(one)
                given = inputs if operation.startswith("grouped") else inputs[0]
                outputs = self.apply(operation, name, given, options)
                outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
                outputs = [one for one in outputs if one.dtype.is_floating]
                loss = sum(
                    self.tf.reduce_sum(one * self.weights(one, weigh, dtype)) for one in outputs
                )
            return tape.gradient(loss, inputs)

        gradients = self.run(function, [self.put(value, dtype) for value in values])
        return [self.get(gradient, dtype) for gradient in gradients]

    def weights(self, output: Any, weigh: Callable[[Array], Array], dtype: str) -> Any:
        """`weigh` of a tensor whose shape may not be known before the graph runs."""
        made = self.tf.numpy_function(lambda array: np.float64(weigh(array)), [output], "float64")
        return self.tf.stop_gradient(self.tf.cast(self.tf.ensure_shape(made, output.shape), dtype))


class Graph(Eager):
    mode = "graph"

    def run(self, function: Callable[..., Any], *inputs: Any) -> Any:
        return self.tf.function(function)(*inputs)


FRAMES: dict[str, list[type[Frame]]] = {"torch": [Torch], "tensorflow": [Eager, Graph]}
