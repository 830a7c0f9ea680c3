"""A step in buckets that ends by an exception: as before, or finished, or refused by name."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lms
import pytest
import torch
from models import SPEED
from torch import Tensor, nn
from torch.optim import SGD, Adam, Adamax, AdamW, Optimizer

KINDS: list[tuple[type[Optimizer], dict[str, Any]]] = [
    (Adam, {"foreach": False}),
    (Adam, {"foreach": True}),
    (AdamW, {"fused": True}),
    (SGD, {"momentum": 0.9}),
]


class Interrupted(BaseException):
    """As KeyboardInterrupt, which could be the tester's own."""


class Faulty(lms.SimulatedDevice):
    """Raises at one of the calls that can: each operation of torch's, each beginning of a copy."""

    def __init__(self) -> None:
        super().__init__("1GiB", SPEED)
        self.calls, self.last = 0, -1

    def _call(self) -> None:
        self.calls += 1
        if self.calls - 1 == self.last:
            raise Interrupted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._call()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def page_out(self, flat: Tensor) -> Any:
        self._call()
        return super().page_out(flat)

    def page_in(self, slot: Tensor, like: Tensor) -> Any:
        self._call()
        return super().page_in(slot, like)

    def refill(self, slot: Tensor, tensor: Tensor, nbytes: int) -> Any:
        self._call()
        return super().refill(slot, tensor, nbytes)

    @contextmanager
    def fault(self, at: int) -> Iterator[None]:
        """Whether it is the call of that number inside that raises."""
        self.calls, self.last = 0, at
        try:
            yield
        finally:
            self.last = -1


class Program:
    """A small model that is trained by steps whose gradients are known."""

    def __init__(
        self, kind: type[Optimizer], options: dict[str, Any], device: Faulty | None, model: bool
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))
        weights, biases = list(self.model.parameters())[::2], list(self.model.parameters())[1::2]
        groups = [{"params": weights}, {"params": biases, "lr": 0.02}]
        self.optimizer = kind(groups, lr=0.01, **options)  # type: ignore[call-arg]
        self.paged = None
        if device is not None:
            lms.page_optimizer(self.optimizer, bucket="1100B", smallest=64, device=device)
            if model:
                self.paged = lms.page_parameters(self.model, smallest=64)

    def step(self, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        for parameter in self.model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        self.optimizer.step()

    def now(self) -> dict[str, Any]:
        """All that training goes on from."""
        state = self.optimizer.state_dict()["state"]
        found = {f"{k} {name}": value for k, one in state.items() for name, value in one.items()}
        return copy.deepcopy(found | dict(self.model.state_dict()))


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    if first.keys() != second.keys():
        return False
    return all(torch.equal(value, second[key]) for key, value in first.items())


def outcome(program: Program, references: list[dict[str, Any]], number: int) -> str:
    """How the step of that number has ended; what follows must be right."""
    try:
        now = program.now()
    except lms.LMSError as error:
        assert "its parameters are of two steps now" in str(error)  # noqa: PT017
        with pytest.raises(lms.LMSError, match="its parameters are of two steps now"):
            program.step(number)
        return "refused"
    finished = same(now, references[number + 1])
    if not finished:
        program.step(number)
    program.step(number + 1)
    assert same(program.now(), references[number + 2])
    return "finished" if finished else "as before"


def interrupted(
    kind: type[Optimizer], options: dict[str, Any], number: int, model: bool, apart: int
) -> set[str]:
    """The outcomes of a step of that number with an exception at a call of some apart.

    Args:
        model: whether parameters are paged too.
    """
    plain = Program(kind, options, None, model)
    references = [plain.now()]
    for i in range(number + 2):
        plain.step(i)
        references.append(plain.now())
    found: set[str] = set()
    at, calls = 0, 1
    while at < calls:
        device = Faulty()
        program = Program(kind, options, device, model)
        with device, lms.LMS("512MiB", smallest=64, device=device):
            for i in range(number):
                program.step(i)
            try:
                with device.fault(at):
                    program.step(number)
            except Interrupted:
                found.add(outcome(program, references, number))
                assert [len(group["params"]) for group in program.optimizer.param_groups] == [3, 3]
            calls = device.calls if not at else calls
        if program.paged:
            lms.keep_parameters(program.paged)
        at += apart
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_an_exception_at_some_calls(number: int) -> None:
    assert interrupted(Adam, {"foreach": False}, number, True, 11) >= {"as before", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("model", [False, True])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_an_exception_at_every_call(
    kind: type[Optimizer], options: dict[str, Any], number: int, model: bool
) -> None:
    assert interrupted(kind, options, number, model, 1) >= {"as before", "refused"}


def test_loading_makes_it_whole_again() -> None:
    device = Faulty()
    program, plain = Program(Adam, {}, device, False), Program(Adam, {}, None, False)
    with device:
        program.step(0)
        model, optimizer = copy.deepcopy(program.model.state_dict()), program.optimizer.state_dict()
        with pytest.raises(Interrupted), device.fault(40):
            program.step(1)
        with pytest.raises(lms.LMSError, match="load model and optimizer from a checkpoint"):
            program.step(1)
        program.model.load_state_dict(model)
        program.optimizer.load_state_dict(optimizer)
        program.step(1)
    plain.step(0)
    plain.step(1)
    assert same(program.now(), plain.now())


@pytest.mark.parametrize("index", [0, 2, 5])
@pytest.mark.parametrize("kind", [Adam, AdamW, Adamax])
def test_a_sparse_gradient_changes_nothing(kind: type[Optimizer], index: int) -> None:
    """These optimizers refuse it, and the program goes on as it does without paging."""
    device = Faulty()
    program, plain = Program(kind, {}, device, False), Program(kind, {}, None, False)
    with device:
        program.step(0)
        bad = list(program.model.parameters())[index]
        bad.grad = torch.ones_like(bad).to_sparse()
        with pytest.raises(RuntimeError, match="sparse"):
            program.optimizer.step()
        program.step(1)
    plain.step(0)
    plain.step(1)
    assert same(program.now(), plain.now())
