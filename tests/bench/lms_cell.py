"""One model of the LMS benchmark by every scheme; prints JSON. Run by `bench_lms.py`.

Needs torch and lms. On the simulated device models run at full size without numbers; on a GPU they
run in earnest, with the memory capped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import lms
import lms_models as models
import torch
from lms.planning.plan import best_share
from lms_bound import lower_bound
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

STASH = 5  # copies out that async offload lets run behind computing, as torchtune's does
SMALLEST = 1 << 20


@dataclass(frozen=True)
class Step:
    """One step of training: seconds of forward and of the rest, bytes at the highest."""

    forward: float
    rest: float
    peak: int

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.forward + self.rest


Scheme = Callable[[Any], AbstractContextManager[Any]]


@contextmanager
def save_on_cpu(device: Any) -> Iterator[None]:
    """Each saved tensor to the host and back, in the compute queue: torch's `save_on_cpu`."""
    if not isinstance(device, lms.SimulatedDevice):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            yield
        return

    def pack(tensor: Tensor) -> tuple[Any, Tensor]:
        with device.aside(), torch.no_grad():
            room, copy = device.page_out(tensor.detach().contiguous().flatten())
            copy.join()
            return room, torch.empty_like(tensor, device="meta")

    def unpack(saved: tuple[Any, Tensor]) -> Tensor:
        with device.aside(), torch.no_grad():
            whole, copy = device.page_in(saved[0], saved[0])
            copy.join()
            return whole.view(saved[1].shape)

    with saved_tensors_hooks(pack, unpack):
        yield


@contextmanager
def async_offload(device: Any) -> Iterator[None]:
    """All activations out on a side stream, each fetched when it is used."""
    stash: list[Any] = []

    def pack(tensor: Tensor) -> Any:
        base = tensor._base
        stays = isinstance(tensor, torch.nn.Parameter) or isinstance(base, torch.nn.Parameter)
        if stays or not device.owns(tensor) or tensor.untyped_storage().nbytes() < SMALLEST:
            return tensor.detach()
        with device.aside(), torch.no_grad():
            room, copy = device.page_out(tensor.detach().contiguous().flatten())
            stash.append((tensor.detach(), copy))
            if len(stash) > STASH:
                stash.pop(0)[1].join()
            return room, tensor.detach().new_empty(0), tensor.shape

    def unpack(saved: Any) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        while stash:
            stash.pop(0)[1].join()
        with device.aside(), torch.no_grad():
            whole, copy = device.page_in(saved[0], saved[1])
            copy.join()
            return whole.view(saved[2])

    with saved_tensors_hooks(pack, unpack):
        yield


def train(
    case: models.Case,
    device: Any,
    scheme: Scheme,
    *,
    size: int,
    steps: int,
    again: bool = False,
    choose: bool = False,
) -> tuple[Step, Any]:
    """The last of some steps, and what the scheme's `with` gave.

    Args:
        again: whether the model itself checkpoints its layers.
        choose: whether LMS may compute layers again; it takes twice the steps to settle.
    """
    simulated = isinstance(device, lms.SimulatedDevice)
    where = "cpu" if simulated else "cuda"
    if not simulated:
        torch.cuda.empty_cache()  # of what was before: the peak is that of what torch holds
    with FakeTensorMode() if simulated else nullcontext(), device if simulated else nullcontext():
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(where):
            model, batch = case.make(again), case.batch(size)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        now = partial(_now, device)
        recomputed = lms.recompute(model) if choose else None
        with scheme(device) as inside:
            for _ in range(2 * steps if choose else steps):
                if simulated:
                    device.highest = device.used
                else:
                    torch.cuda.reset_peak_memory_stats()
                start = now()
                loss = models.loss(model, *batch)
                turn = now()
                loss.backward()
                del loss
                optimizer.step()
                optimizer.zero_grad()
                peak = device.highest if simulated else torch.cuda.max_memory_reserved()
                last = Step(turn - start, now() - turn, peak)
            report = inside.report() if isinstance(inside, lms.LMS) else None
        if recomputed:
            recomputed.remove()
    return last, report


def _now(device: Any) -> float:
    if isinstance(device, lms.SimulatedDevice):
        return device.clock
    torch.cuda.synchronize()
    return time.perf_counter()


def _device(kind: str) -> Any:
    if kind == "simulated":
        return lms.SimulatedDevice("64TiB")
    from lms.devices.cuda import CudaDevice

    return CudaDevice()


def table(case: models.Case, kind: str, ratios: list[float]) -> dict[str, Any]:
    """All schemes, and LMS at each ratio of demand and limit."""
    run = partial(train, case, size=case.size)
    steps = 5 if kind == "simulated" else 12
    plain, _ = run(_device(kind), nullcontext, steps=steps)
    found: dict[str, Any] = {"case": case.name, "demand": plain.peak, "plain": asdict(plain)}
    others: dict[str, tuple[Scheme, bool]] = {
        "checkpointing": (nullcontext, True),
        "save_on_cpu": (save_on_cpu, False),
        "async_offload": (async_offload, False),
    }
    for name, (scheme, again) in others.items():
        step, _ = run(_device(kind), scheme, again=again, steps=steps)
        found[name] = {"throughput": plain.seconds / step.seconds, "peak": step.peak}
    found["lms"] = []
    for ratio in ratios:
        limit, device = int(plain.peak / ratio), _device(kind)
        row: dict[str, Any] = {"ratio": ratio, "limit": limit}
        try:
            step, report = run(device, partial(_lms, limit), steps=steps)
        except lms.NoPlanError as error:
            row["no_plan"] = error.shortfall
        else:
            best = best_share(
                plain.forward, plain.rest, max(0, plain.peak - limit), device.rates.d2h
            )
            share = plain.seconds / step.seconds
            row |= {"throughput": share, "best": best, "share": share / best, "peak": step.peak}
            row |= {"predicted": report.predicted, "measured": step.seconds, "moved": report.moved}
            row["repeated"] = repeated(run, plain, kind, limit, steps)
            step, report = run(_device(kind), partial(_lms, limit), steps=steps, choose=True)
            row["mixed"] = {"throughput": plain.seconds / step.seconds, "peak": step.peak}
            row["mixed"] |= {"again": len(report.again), "layers": report.layers}
        found["lms"].append(row)
    return found


def repeated(
    run: Callable[..., tuple[Step, Any]], plain: Step, kind: str, limit: int, steps: int
) -> dict[str, Any]:
    """LMS that repeats single operations, and the linear program's bounds from the same trace."""
    device, engines = _device(kind), list[Any]()

    @contextmanager
    def scheme(device: Any) -> Iterator[lms.LMS]:
        with _lms(limit, device, again=True) as support:
            yield support
            support.report()  # ends the last iteration
            engines.append(support.engine)

    step, report = run(device, scheme, steps=steps)
    trace = engines[0].plans.entries[0][0]
    plannable = engines[0].plannable
    found: dict[str, Any] = {"throughput": plain.seconds / step.seconds, "peak": step.peak}
    found |= {"storages": report.operations, "bytes": report.operations_bytes}
    for name, recompute in (("bound_moves", False), ("bound", True)):
        least = lower_bound(trace, plannable, device.rates, SMALLEST, recompute=recompute)
        found[name] = sum(trace.seconds) / least if least else None
    return found


def _lms(limit: int, device: Any, again: bool = False) -> lms.LMS:
    return lms.LMS(limit, smallest=SMALLEST, device=device, recompute_operations=again)


def reach(case: models.Case, kind: str, limit: int) -> dict[str, Any]:
    """The largest batch in-core and under LMS, and the throughput per sample there.

    Also from twice in-core's batch on where LMS may compute layers again.
    """

    def fits(size: int, under: bool, choose: bool = False) -> Step | None:
        device = _device(kind)
        device.cap(limit)
        scheme = partial(_lms, limit) if under else nullcontext
        try:
            return train(case, device, scheme, size=size, steps=5, choose=choose)[0]
        except (lms.NoPlanError, torch.OutOfMemoryError):
            return None

    def largest(low: int, under: bool) -> tuple[int, Step]:
        best = fits(low, under)
        assert best is not None, f"{case.name} does not fit at {low}"
        high = low
        while (step := fits(high * 2, under)) is not None:
            high, best = high * 2, step
        low, high = high, high * 2
        while high - low > max(1, low // 50):
            middle = (low + high) // 2
            step = fits(middle, under)
            low, high, best = (middle, high, step) if step else (low, middle, best)
        return low, best

    before, plain = largest(8, False)
    after, step = largest(before, True)
    found: dict[str, Any] = {"case": case.name, "limit": limit, "in_core": before, "lms": after}
    found["speed"] = (after / step.seconds) / (before / plain.seconds)
    found["mixed"] = {}
    for size in (2 * before, 4 * before, int(4.9 * before), after):
        mixed = fits(size, True, choose=True)
        if mixed is not None:
            found["mixed"][size] = (size / mixed.seconds) / (before / plain.seconds)
    return found


def main() -> None:
    """The command line."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("case", choices=[case.name for case in models.CASES])
    ask.add_argument("--device", choices=["simulated", "cuda"], default="simulated")
    ask.add_argument("--ratios", nargs="*", type=float, default=[0.95, 1.5, 2, 4])
    ask.add_argument("--reach", type=int, help="bytes: find the largest batches instead")
    options = ask.parse_args()
    case = next(case for case in models.CASES if case.name == options.case)
    if options.reach:
        print(json.dumps(reach(case, options.device, options.reach)))
    else:
        print(json.dumps(table(case, options.device, options.ratios)))


if __name__ == "__main__":
    main()
