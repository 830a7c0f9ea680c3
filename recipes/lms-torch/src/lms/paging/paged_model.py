"""Paging of a model's parameters: which they are, and from when to when.

    lms.page_parameters(model)

They are paged while LMS is on. `lms.paging.paged_parameter` is how one parameter leaves and
returns; the engine decides when.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from torch import nn
from torch.utils.hooks import RemovableHandle

from lms.errors import LMSError
from lms.paging.device import Device
from lms.paging.paged_parameter import PagedParameter, paged_parameter
from lms.paging.tensors import is_fake, nbytes_of
from lms.sizes import Size, parse_size


class ParameterPager(Protocol):
    """The part of the engine that pages parameters."""

    @property
    def device(self) -> Device:
        """The device that they lie on."""

    def page(self, parameters: Iterable[nn.Parameter]) -> list[PagedParameter]:
        """Pages some parameters from now on."""

    def unpage(self, parameters: Iterable[PagedParameter], keep: bool) -> None:
        """Brings parameters back for good, or has done with them."""


class PagedModel:
    """The parameters of one model that are paged whenever LMS is on, until `detach`.

    Args:
        smallest: parameters of fewer bytes stay.

    Raises:
        LMSError: it is compiled, or its parameters are not plain ones.
        LimitError: a size makes no sense.
    """

    def __init__(self, model: nn.Module, smallest: Size) -> None:
        least = parse_size(smallest, "smallest")
        _refuse_compiled(model)
        found = dict(model.named_parameters())
        _refuse_other_kinds(found)
        self.names = [name for name, p in found.items() if nbytes_of(p) >= least]
        self.parameters = [found[name] for name in self.names]
        self._owners = [m for m in model.modules() if any(map(self._has, m._parameters.values()))]
        self._hooks: list[RemovableHandle] = []
        self._pager: ParameterPager | None = None
        self._paged: list[PagedParameter] = []

    def attach(self, pager: ParameterPager) -> None:
        """LMS is on: the parameters leave.

        Raises:
            LMSError: one of them is not in this device's memory.
        """
        self._check_device(pager.device)
        self._pager, self._paged = pager, pager.page(self.parameters)
        self._hooks = [m.register_state_dict_post_hook(_to_host) for m in self._owners]

    def _has(self, parameter: nn.Parameter | None) -> bool:
        return any(parameter is mine for mine in self.parameters)

    def _check_device(self, device: Device) -> None:
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
        if self._pager is not None:
            self._pager.unpage(self._paged, keep)
        self._pager, self._paged = None, []


def _refuse_compiled(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module._compiled_call_impl or hasattr(module, "_orig_mod"):
            kind = type(module).__name__
            raise LMSError(
                f"the parameters of {f'{name} ({kind})' if name else f'this {kind}'} cannot be "
                "paged: it is under torch.compile, whose graphs take parameters as they are; page "
                "them without it"
            )


def _refuse_other_kinds(parameters: dict[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        if type(parameter) is not nn.Parameter and not is_fake(parameter):
            twice = " already" if paged_parameter(parameter) else ""
            raise LMSError(
                f"the parameter {name} cannot be paged: it is a {type(parameter).__name__}"
                f"{twice}, not a plain torch.nn.Parameter (FSDP, tensor parallelism and lazy "
                "modules keep parameters in other ways)"
            )


def _to_host(module: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    """In a `state_dict`, copies on the host: all parameters at once need not fit on the device.

    A function of its own, so that copies of the module may have it too.
    """
    for name, parameter in module._parameters.items():
        found = state.get(prefix + name)
        if found is None or found is parameter or parameter is None:
            continue
        if (paged := paged_parameter(parameter)) is not None:
            with paged.owner.device.aside():
                state[prefix + name] = found.to("cpu", copy=True)
