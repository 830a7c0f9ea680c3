"""Runs a function as soon as a module has been imported."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, home: str, function: str) -> None:
    """Call `function` of the module `home` after the import of `name`: at once if it has been."""
    if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", True):
        sys.meta_path.insert(0, _Finder(name, home, function))
    else:
        _call(home, function)


def _call(home: str, function: str) -> None:
    getattr(importlib.import_module(home), function)()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, as the finders after it do, with a loader that calls afterwards.

    TensorFlow asks where Keras is before it imports it, so a module that is found need not be
    loaded.
    """

    def __init__(self, name: str, home: str, function: str) -> None:
        self._name = name
        self._then = home, function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        after = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(fullname, path, target) for finder in after)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def loaded(self) -> None:
        """Call the function, once."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            _call(*self._then)


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.loaded()
