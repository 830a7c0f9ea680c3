"""Frameworks whose tensors another package brings to `ddl`: a row for each, named nowhere else.

A table, not entry points: `import ddl` in every rank would read the metadata of all installed
packages from a shared file system.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any


@dataclass(frozen=True)
class Framework:
    """A framework and the package that serves it.

    Attributes:
        name: as people write it.
        package: the conda package; its module has the same name with underscores.
        modules: top-level modules whose tensors the package takes.
        names: its members that users find in `ddl`.
    """

    name: str
    package: str
    modules: frozenset[str]
    names: frozenset[str]

    @property
    def module(self) -> str:
        """The package's module."""
        return self.package.replace("-", "_")

    def load(self) -> Any | None:
        """The module, or None where the package is not installed."""
        try:
            return import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module:
                raise
            return None


FRAMEWORKS = (
    Framework(
        name="TensorFlow",
        package="ddl-tensorflow",
        modules=frozenset({"tensorflow", "keras"}),
        names=frozenset(
            {
                "DDLCallback",
                "DDLGlobalVariablesCallback",
                "DistributedOptimizer",
                "broadcast_n",
                "grads_reduce",
                "shard",
                "wrap",
            }
        ),
    ),
)


_BY_NAME = {name: framework for framework in FRAMEWORKS for name in framework.names}
_BY_MODULE = {module: framework for framework in FRAMEWORKS for module in framework.modules}


def member(name: str) -> Any | None:
    """What a framework's package calls `name`, or None if the name is no framework's.

    Raises:
        AttributeError: the package is not installed.
    """
    if (framework := _BY_NAME.get(name)) is None:
        return None
    if (module := framework.load()) is None:
        raise AttributeError(
            f"ddl.{name} is of the package {framework.package}, which is not installed; "
            f"install it: conda install {framework.package}"
        )
    return getattr(module, name)


def module_for(value: object, function: str) -> Any | None:
    """The module whose functions take `value`, or None if `value` is no framework's.

    Raises:
        TypeError: the package is not installed; `function` names the caller.
    """
    if (framework := _BY_MODULE.get(type(value).__module__.partition(".")[0])) is None:
        return None
    if (module := framework.load()) is None:
        raise TypeError(
            f"{function}: {framework.name}'s tensors need the package {framework.package}; "
            f"install it: conda install {framework.package}"
        )
    return module


def activate() -> None:
    """Let each installed package wait for its framework to be imported."""
    for framework in FRAMEWORKS:
        if find_spec(framework.module) is not None:
            import_module(framework.module).activate()
