"""Folders that no other user of the machine can prepare, for packages that keep theirs in `/tmp`.

`/tmp/torchinductor_NAME` is taken as it is found, so whoever made it first runs code as NAME. In
smaller ways this is true of other packages, too. `private_caches.pth` calls `install` when Python
starts, with the environment activated or not. Then the modules of `MENDED` are mended when a
program loads them. A program that loads none of them pays one look-up for each of its imports.
"""

# Python starts with this file: nothing is imported here that Python has not loaded by then.
from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["MENDED", "install"]

#: Module → the function of `private_caches.mends`, or MODULE:FUNCTION, that runs it, mended.
MENDED = {
    "jupyter_server.services.contents.filecheckpoints": "temporary_folder",
    "keras.src.backend.config": "keras_home",
    "tensorboard.manager": "tensorboard_folder",
    "tensorflow.python.keras.utils.data_utils": "keras_downloads",
    "tf_keras.src.backend": "keras_home",
    "tf_keras.src.utils.data_utils": "keras_downloads",
    "tiktoken.load": "tiktoken_folder",
    "torch._dynamo.debug_utils": "temporary_folder",
    "torch._inductor.cache": "temporary_folder",
    "torch._inductor.debug": "temporary_folder",
    "torch._inductor.runtime.cache_dir_utils": "inductor_folder",
    "torch._vendor.quack._compile_payload": "temporary_folder",
    "torch._vendor.quack.cache.jit": "temporary_folder",
    "torchmetrics.functional.text.sacre_bleu": "flores_folder",
    "wandb.sdk.wandb_init": "temporary_folder",
}


class _Finder:
    """Finds the modules to mend where the others find them, and runs them by way of `mends`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in MENDED:
            return None
        others = (finder for finder in sys.meta_path if not isinstance(finder, _Finder))
        found = (f.find_spec(name, path, target) for f in others if hasattr(f, "find_spec"))
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                import importlib

                where, _, mend = MENDED[name].rpartition(":")
                mends = importlib.import_module(where or "private_caches.mends")
                getattr(mends, mend)(module, run)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Mend the modules of `MENDED` from now on; twice is once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
