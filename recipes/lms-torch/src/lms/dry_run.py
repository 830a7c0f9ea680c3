"""Planning without a GPU: a model of any size, its plan under a limit, in seconds.

    report = lms.plan(make_step, limit="40GiB")

    python -m lms my_models:make_step --limit 40GiB

Runs two steps under FakeTensorMode on the simulated device: no numbers and no memory, but the same
engine, planner, meter and clock.
"""

from __future__ import annotations

from collections.abc import Callable

from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from lms.devices.simulated import SimulatedDevice, Speed
from lms.errors import LMSError
from lms.hooks.recomputed_layers import forget_new_layers, registered
from lms.report import Report
from lms.session import LMS, forget_new_models
from lms.sizes import DEFAULT_SMALLEST, Size, parse_size

Step = Callable[[], object]

#: Steps that are run until the choice of layers to compute again has settled.
_MOST_STEPS = 20


def plan(
    make_step: Callable[[], Step],
    limit: Size,
    *,
    memory: Size | None = None,
    speed: Speed | None = None,
    smallest: Size = DEFAULT_SMALLEST,
    steps: int = 3,
    recompute_operations: bool = False,
) -> Report:
    """The plan that LMS would make.

    Args:
        make_step: makes the model, the optimizer and the batch, on the CPU, and returns a function
            that trains one step. Nothing in it may depend on a tensor's numbers.
        limit: bytes on the device.
        memory: bytes that the device has; the limit when it is None.
        speed: an H100 on PCIe 5 when it is None.
        smallest: storages of fewer bytes stay.
        steps: how many to run; the plan settles when gradients and the optimizer's state are there.
            With `lms.recompute` some more are run.
        recompute_operations: as for `lms.LMS`.

    Raises:
        NoPlanError: there is no plan within the limit.
        LimitError: a size makes no sense.
        LMSError: the step depends on a tensor's numbers.
    """
    most = parse_size(limit)
    device = SimulatedDevice(most if memory is None else memory, speed)
    support = LMS(most, smallest=smallest, device=device, recompute_operations=recompute_operations)
    try:
        with FakeTensorMode(), device:
            with forget_new_layers(), support, forget_new_models():
                _train(make_step(), support, steps)
                return support.report()
    except DataDependentOutputException as error:
        raise LMSError(
            f"a step depends on the numbers in a tensor, and a plan is made without any ({error}): "
            "leave that out of the step for planning"
        ) from error


def _train(step: Step, support: LMS, steps: int) -> None:
    """Some steps, and with layers to compute again more, until their choice has settled."""
    for number in range(1, max(steps, _MOST_STEPS) + 1):
        step()
        settled = support.engine is None or support.engine.settled
        if number >= steps and (settled or not registered):
            break
