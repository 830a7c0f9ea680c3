"""Paging of a model's parameters: which they are, and from when to when.

    lms.page_parameters(model)

They are paged while LMS is on. See `lms.weights` for how one parameter leaves and returns, and the
engine for when.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from lms.device import Device
from lms.engine import Engine
from lms.errors import LMSError
from lms.managed import is_fake
from lms.sizes import parse_size
from lms.weights import Weight, weight_of


class PagedParameters:
    """The parameters of one model that are paged whenever LMS is on, until `remove`.

    Args:
        smallest: parameters of fewer bytes stay.

    Raises:
        LMSError: it is compiled, or its parameters are not plain ones.
        LimitError: a size makes no sense.
    """

    def __init__(self, model: nn.Module, smallest: int | float | str) -> None:
        least = parse_size(smallest, "smallest")
        for name, module in model.named_modules():
            if module._compiled_call_impl or hasattr(module, "_orig_mod"):
                raise LMSError(
                    f"the parameters of {_named(name, module)} cannot be paged: it is under "
                    "torch.compile, whose graphs take parameters as they are; page them without it"
                )
        found = dict(model.named_parameters())
        for name, parameter in found.items():
            if type(parameter) is not nn.Parameter and not is_fake(parameter):
                twice = " already" if weight_of(parameter) else ""
                raise LMSError(
                    f"the parameter {name} cannot be paged: it is a {type(parameter).__name__}"
                    f"{twice}, not a plain torch.nn.Parameter (FSDP, tensor parallelism and lazy "
                    "modules keep parameters in other ways)"
                )
        self.names = [name for name, p in found.items() if p.numel() * p.element_size() >= least]
        self.parameters = [found[name] for name in self.names]
        self._owners = [m for m in model.modules() if any(map(self._has, m._parameters.values()))]
        self._hooks: list[RemovableHandle] = []
        self._engine: Engine | None = None
        self._weights: list[Weight] = []

    def attach(self, engine: Engine) -> None:
        """LMS is on: the parameters leave.

        Raises:
            LMSError: one of them is not in this device's memory.
        """
        self.check(engine.device)
        self._engine, self._weights = engine, engine.page(self.parameters)
        self._hooks = [m.register_state_dict_post_hook(_to_host) for m in self._owners]

    def _has(self, parameter: nn.Parameter | None) -> bool:
        return any(parameter is mine for mine in self.parameters)

    def check(self, device: Device) -> None:
        """Raises LMSError if a parameter is elsewhere."""
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if not device.owns(parameter):
                raise LMSError(
                    f"the parameter {name} is on {parameter.device}, not on the device whose "
                    "memory is limited; move the model there first"
                )

    def detach(self, keep: bool = True) -> None:
        """LMS is off: the parameters come back, unless nobody wants them."""
        for hook in self._hooks:
            hook.remove()
        if self._engine is not None:
            self._engine.unpage(self._weights, keep)
        self._engine, self._weights = None, []


def _to_host(module: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    """In a `state_dict`, copies on the host: all parameters at once need not fit on the device.

    A function of its own, so that copies of the module may have it too.
    """
    for name, parameter in module._parameters.items():
        found = state.get(prefix + name)
        if found is None or found is parameter or parameter is None:
            continue
        if (weight := weight_of(parameter)) is not None:
            with weight.owner.device.aside():
                state[prefix + name] = found.to("cpu", copy=True)


def _named(name: str, module: nn.Module) -> str:
    return f"{name} ({type(module).__name__})" if name else f"this {type(module).__name__}"
