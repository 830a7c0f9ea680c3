"""ddl_tensorflow's hook on imports, with toys in the place of TensorFlow and Keras."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOOK = Path(__file__).parents[2] / "recipes/ddl-tensorflow/src/ddl_tensorflow/_import_hook.py"


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The hook, in a package `ours` whose module `reducing` imports the module `framework`."""
    before, finders = set(sys.modules), list(sys.meta_path)
    ours = tmp_path / "ours"
    ours.mkdir()
    shutil.copy(HOOK, ours)
    (ours / "__init__.py").write_text("from ours import _import_hook\n_import_hook.watch_own()\n")
    (ours / "reducing.py").write_text("import framework\nreduce = len\n")
    (ours / "attached.py").write_text(
        "from ours import reducing\ncalls = []\n"
        "def attach(): calls.append(reducing.reduce)\n"
        "def lacks(): from ours.reducing import gone\n"
    )
    (tmp_path / "framework.py").write_text("")
    (tmp_path / "broken.py").write_text("raise ImportError('no library')\n")
    (ours / "failing.py").write_text("import framework\nraise ValueError('of ours')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("ours._import_hook")
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        del sys.modules[name]


def calls() -> list[Any]:
    found: list[Any] = importlib.import_module("ours.attached").calls
    return found


def test_a_function_waits_until_our_module_is_complete(hook: Any) -> None:
    """`reducing` imports the framework, whose function needs `reducing`."""
    hook.when_imported("framework", "ours.attached", "attach")
    importlib.import_module("ours.reducing")
    assert calls() == [len]


def test_a_module_is_attached_once(hook: Any) -> None:
    hook.when_imported("framework", "ours.attached", "attach")
    framework = importlib.import_module("framework")
    importlib.reload(framework)
    assert calls() == [len]


def test_a_framework_that_is_there_is_attached_at_once(hook: Any) -> None:
    importlib.import_module("framework")
    hook.when_imported("framework", "ours.attached", "attach")
    assert calls() == [len]


def test_an_error_of_ours_is_none_that_tensorflow_hides(hook: Any) -> None:
    hook.when_imported("framework", "ours.attached", "lacks")
    with pytest.raises(RuntimeError, match=r"^ddl: cannot attach ours\.attached: cannot import"):
        importlib.import_module("framework")


def test_a_framework_that_cannot_be_imported_may_be_tried_again(hook: Any, tmp_path: Path) -> None:
    hook.when_imported("broken", "ours.attached", "attach")
    with pytest.raises(ImportError, match="no library"):
        importlib.import_module("broken")
    assert calls() == []
    (tmp_path / "broken.py").write_text("# mended\n")
    importlib.invalidate_caches()
    importlib.import_module("broken")
    assert calls() == [len]


def test_a_module_of_ours_that_fails_holds_nobody_up(hook: Any) -> None:
    """The function is called all the same, and the module's own error is told."""
    hook.when_imported("framework", "ours.attached", "attach")
    with pytest.raises(ValueError, match="of ours"):
        importlib.import_module("ours.failing")
    assert calls() == [len]
    importlib.import_module("ours.reducing")
    assert calls() == [len]


def test_modules_keep_their_own_loader(hook: Any) -> None:
    hook.when_imported("framework", "ours.attached", "attach")
    for name in ("framework", "ours.reducing"):
        module = importlib.import_module(name)
        assert module.__spec__ is not None
        assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
        assert module.__loader__ is module.__spec__.loader
