"""For each kind of module that keeps something in `/tmp`: how it runs, mended."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from private_caches.folder import private_folder

Run = Callable[[ModuleType], None]


def inductor_folder(module: ModuleType, run: Run) -> None:
    """`torch.compile` reads machine code and pickles from it.

    A home may be shared by hosts whose processors differ, and the code is for one kind
    (`-march=native`): each kind has a folder of its own.
    """
    run(module)
    module.__dict__["default_cache_dir"] = lambda: private_folder(f"torchinductor/{_processor()}")


def tensorboard_folder(module: ModuleType, run: Run) -> None:
    """TensorBoard notes there which servers run; a notebook shows the page of one that it finds."""
    run(module)
    host = platform.node() or "localhost"
    module.__dict__["_get_info_dir"] = lambda: private_folder(f"tensorboard/{host}")


def keras_home(module: ModuleType, run: Run) -> None:
    """Keras reads its settings and data sets from `/tmp/.keras` where the home is read-only."""
    if "KERAS_HOME" not in os.environ and not _may_write(""):
        os.environ["KERAS_HOME"] = private_folder("keras")
    run(module)


def keras_downloads(module: ModuleType, run: Run) -> None:
    """The same for `get_file` of older Kerases, which knows no KERAS_HOME."""
    run(module)
    get_file = module.__dict__["get_file"]

    @functools.wraps(get_file)
    def private(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("cache_dir") is None and not _may_write(".keras"):
            kwargs["cache_dir"] = private_folder("keras")
        return get_file(*args, **kwargs)

    module.__dict__["get_file"] = private


def tiktoken_folder(module: ModuleType, run: Run) -> None:
    """Vocabularies, of which some are read without a hash."""
    run(module)
    read = module.__dict__["read_file_cached"]

    @functools.wraps(read)
    def private(*args: Any, **kwargs: Any) -> Any:
        if not {"TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"} & os.environ.keys():
            os.environ["TIKTOKEN_CACHE_DIR"] = private_folder("tiktoken")
        return read(*args, **kwargs)

    module.__dict__["read_file_cached"] = private


def flores_folder(module: ModuleType, run: Run) -> None:
    """The models that SacreBLEU's tokenizers download."""
    run(module)
    module.__dict__["_FLORES_LOCAL_DIR"] = _Folder("torchmetrics")


def temporary_folder(module: ModuleType, run: Run) -> None:
    """Modules that put names which others can guess under `tempfile.gettempdir()`."""
    run(module)

    def gettempdir() -> str:
        return private_folder(module.__name__.partition(".")[0])

    if "gettempdir" in module.__dict__:
        module.__dict__["gettempdir"] = gettempdir
    else:
        ours = ModuleType("tempfile", tempfile.__doc__)
        ours.__dict__.update(tempfile.__dict__ | {"gettempdir": gettempdir})
        module.__dict__["tempfile"] = ours


class _Folder(os.PathLike[str]):
    """A private folder that is made when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __fspath__(self) -> str:
        return private_folder(self._name)


def _may_write(name: str) -> bool:
    """Whether the user may write to this folder of their home."""
    try:
        return os.access(Path.home() / name, os.W_OK)
    except RuntimeError:  # they have none
        return False


@functools.cache
def _processor() -> str:
    """A name for this kind of processor."""
    wanted = ("model name", "flags", "cpu", "Features")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    kinds = {line for line in lines if line.partition(":")[0].strip() in wanted}
    digest = hashlib.sha256("\n".join(sorted(kinds)).encode()).hexdigest()
    return f"{platform.machine()}-{digest[:12]}"
