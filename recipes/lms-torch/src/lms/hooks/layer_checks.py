"""The layers of a model that may be computed again, and those that are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from lms.errors import LMSError


def find_layers(model: nn.Module | Iterable[nn.Module]) -> dict[str, nn.Module]:
    """The layers of a model, or those of a list, by name.

    Raises:
        LMSError: there are none.
    """
    if isinstance(model, nn.Module):
        found = dict(_listed_items(model))
        if not found:
            raise LMSError(
                f"this {type(model).__name__} has no ModuleList or Sequential whose items "
                "could be computed again; give a list of its layers"
            )
    else:
        found = {f"layer {number}": module for number, module in enumerate(model)}
        if not found:
            raise LMSError("there are no layers in the list")
    return found


def _listed_items(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The items of a module's outermost ModuleLists and Sequentials, with their names."""
    listed = isinstance(module, nn.ModuleList | nn.Sequential)
    for name, child in module.named_children():
        if listed and not isinstance(child, nn.ModuleList):
            yield prefix + name, child
        else:
            yield from _listed_items(child, f"{prefix}{name}.")


def check_layers(
    layers: dict[str, nn.Module], given_before: Iterable[tuple[str, nn.Module]]
) -> None:
    """Refuses layers that LMS cannot compute again.

    Args:
        given_before: the layers that LMS may compute again already, with their names.

    Raises:
        LMSError: one is no module, compiled, sharded, inside another, or given twice.
    """
    names = {id(module): name for name, module in layers.items() if isinstance(module, nn.Module)}
    before = list(given_before)
    known = {id(module): name for name, module in before}
    for name, module in layers.items():
        _check_kind(name, module)
        if id(module) in known:
            raise LMSError(f"LMS may compute {name} ({type(module).__name__}) again already")
        if names[id(module)] != name:
            raise LMSError(f"{names[id(module)]} and {name} are the same layer")
        for inner in module.modules():
            if inner is not module and id(inner) in names | known:
                within = (names | known)[id(inner)]
                raise LMSError(f"{within} is inside {name}; give one of them")
    for name, module in before:
        for inner in module.modules():
            if id(inner) in names:
                raise LMSError(f"{names[id(inner)]} is inside {name}, given before")


def _check_kind(name: str, module: nn.Module) -> None:
    """Raises LMSError if a layer is no module, compiled or sharded."""
    from torch.distributed.tensor import DTensor

    if not isinstance(module, nn.Module):
        raise LMSError(f"{name} is a {type(module).__name__}, not a torch.nn.Module")
    if module._compiled_call_impl or hasattr(module, "_orig_mod"):
        raise LMSError(
            f"{name} ({type(module).__name__}) is under torch.compile, which decides itself "
            "what it computes again; give LMS layers that are not compiled"
        )
    if any(isinstance(parameter, DTensor) for parameter in module.parameters()):
        raise LMSError(
            f"{name} ({type(module).__name__}) has parameters that are sharded (FSDP, tensor "
            "parallelism): each rank chooses its layers, and to gather them takes all ranks; "
            "use torch.utils.checkpoint there"
        )
