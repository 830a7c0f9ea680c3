"""Runs a function as soon as a module has been imported, and none of ours is half loaded.

The import of one of our modules may load TensorFlow, which loads Keras: functions that these call
would meet that module half loaded. They wait until it is complete.
"""

from __future__ import annotations

import importlib.abc
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = __name__.partition(".")[0]


class _Calls(threading.local):
    """How many of our modules this thread is loading, and the functions that wait for them."""

    def __init__(self) -> None:
        self.loading = 0
        self.waiting: list[tuple[str, str]] = []

    def add(self, home: str, function: str) -> None:
        self.waiting.append((home, function))
        self.run()

    def run(self) -> None:
        """Call them, unless one of our modules is half loaded."""
        while self.waiting and not self.loading:
            home, function = self.waiting.pop(0)
            try:
                getattr(importlib.import_module(home), function)()
            except (ImportError, AttributeError) as error:
                # TensorFlow ignores these two of Keras: every rank would train alone.
                raise RuntimeError(f"ddl: cannot attach {home}: {error}") from error


_calls = _Calls()


def when_imported(name: str, home: str, function: str) -> None:
    """Call `function` of the module `home` after the import of `name`: at once if it has been.

    Raises:
        RuntimeError: `home` cannot be loaded, or lacks a part of that framework.
    """
    if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", True):
        sys.meta_path.insert(0, _Finder(name, home, function))
    else:
        _calls.add(home, function)


def watch_own() -> None:
    """Let functions wait for our modules, from now on."""
    if not any(isinstance(finder, _OwnFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OwnFinder())


class _Wrapping(importlib.abc.MetaPathFinder):
    """Finds modules as the finders after it do, with another loader around theirs.

    TensorFlow asks where Keras is before it imports it, so a module that is found need not be
    loaded.
    """

    def wanted(self, fullname: str) -> bool:
        raise NotImplementedError

    def loader(self, loader: importlib.abc.Loader) -> importlib.abc.Loader:
        raise NotImplementedError

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self.wanted(fullname):
            return None
        after = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(fullname, path, target) for finder in after)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = self.loader(spec.loader)
        return spec


class _Finder(_Wrapping):
    """Finds one module; its loader calls a function afterwards."""

    def __init__(self, name: str, home: str, function: str) -> None:
        self._name = name
        self._then = home, function

    def wanted(self, fullname: str) -> bool:
        return fullname == self._name

    def loader(self, loader: importlib.abc.Loader) -> importlib.abc.Loader:
        return _Loader(loader, self)

    def loaded(self) -> None:
        """Call the function, once."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            _calls.add(*self._then)


class _OwnFinder(_Wrapping):
    """Finds the modules of this package that TensorFlow or Keras may load, or that load them."""

    def wanted(self, fullname: str) -> bool:
        return fullname.startswith(f"{_PACKAGE}.")

    def loader(self, loader: importlib.abc.Loader) -> importlib.abc.Loader:
        return _OwnLoader(loader)


class _Around(importlib.abc.Loader):
    """Makes a module as the loader inside does, which stays the module's own."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)


class _Loader(_Around):
    def __init__(self, loader: importlib.abc.Loader, finder: _Finder) -> None:
        super().__init__(loader)
        self._finder = finder

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        self._finder.loaded()


class _OwnLoader(_Around):
    def exec_module(self, module: ModuleType) -> None:
        _calls.loading += 1
        try:
            super().exec_module(module)
        finally:
            _calls.loading -= 1
            _calls.run()
