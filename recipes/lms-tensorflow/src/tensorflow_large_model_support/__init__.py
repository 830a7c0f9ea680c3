"""IBM's TFLMS by its own names, so that programs that were written for it run.

    from tensorflow_large_model_support import LMS

    lms = LMS()                      # or LMS(swapout_threshold=40, swapin_ahead=3)
    lms.batch_size = 64
    model.fit(data, callbacks=[lms])

Its options become those of `lms_tensorflow.LMS`, which does the work. In sessions of TensorFlow 1,
`lms.run()` before the first step, or LMS among the hooks, serves what runs from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lms_tensorflow
import tensorflow as tf
from lms_tensorflow.errors import OptionError

__all__ = ["LMS", "LMSHook", "LMSKerasCallback", "LMSSessionRunHook"]

#: Whatever says by the names or types of operations which tensors move. None of these can be had.
_CHOOSING = {
    *(
        f"{how}_{end}_by_{what}"
        for how in ("excl", "incl")
        for end in ("output", "input")
        for what in ("scopes", "types")
    ),
    *(f"{how}_{what}" for how in ("excl", "incl") for what in ("scopes", "types")),
}

#: Hints for the search in the graph, and pictures of it: LMS needs no hints, and has a report.
_WITHOUT_EFFECT = {
    *("graph", "optimizer_scopes", "starting_scope", "starting_op_names", "ub", "fuse_swapins"),
    *("ctrld_strategy", "swap_branches", "branch_threshold", "debug", "debug_level"),
    *("autotune_plot", "is_training"),
}


class LMS(lms_tensorflow.LMS, tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A callback of `fit`, a hook of a monitored session, or, by `run`, for sessions.

    Args:
        swapout_threshold: tensors that are used later than this many levels after they are made
            are swapped; -1: LMS chooses, so that the step fits into the GPU.
        swapin_groupby: as in `lms_tensorflow.Options`; -1: LMS chooses.
        swapin_ahead: as `swapin_groupby`.
        sync_mode, serialization: as in `lms_tensorflow.Options`.
        serialization_by_size: GiB, 0 for none.
        cpu_device: where tensors are swapped to.
        gpu_device: where they are swapped from.
        more: `debug`, and options of TFLMS 1. `lb` is the `swapin_ahead` of then. Those that choose
            tensors are refused, and those that help to find them are taken without effect.

    Raises:
        OptionError: a value that an option cannot have.
        LmsError: TensorFlow sees no GPU, and no device was named.
        TypeError: there is no such option.
    """

    def __init__(
        self,
        swapout_threshold: Any = -1,
        swapin_groupby: int = -1,
        swapin_ahead: int = -1,
        sync_mode: int = 0,
        serialization: Sequence[int | str] = (),
        serialization_by_size: float = 0,
        *,
        cpu_device: str = "/cpu:0",
        gpu_device: str | None = None,
        **more: Any,
    ) -> None:
        if isinstance(swapout_threshold, str | set | frozenset | list | tuple):
            swapout_threshold = -1  # TFLMS 1 had `optimizer_scopes` there
        ahead = more.pop("lb", swapin_ahead)
        chosen = {
            "swapout_threshold": _unless(-1, swapout_threshold, least=1, add=1),
            "swapin_groupby": _unless(-1, swapin_groupby),
            "swapin_ahead": _unless(-1, ahead, least=1),
            "serialization": serialization or None,
            "serialization_by_size": _bytes("serialization_by_size", serialization_by_size),
        }
        super().__init__(device=gpu_device, host=cpu_device, sync_mode=sync_mode, **chosen)
        for name, value in more.items():
            if name not in {*_CHOOSING, *_WITHOUT_EFFECT, "n_tensors"}:
                raise TypeError(f"LMS: TFLMS has no option {name!r}")
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Options may be set until the first step.

        Raises:
            OptionError: one that chooses tensors, or a value that the option cannot have.
        """
        if (name in _CHOOSING and value) or (name == "n_tensors" and value != -1):
            raise OptionError(
                f"LMS: {name} is {value!r}; LMS chooses the tensors itself, as few as keep the "
                "limit: leave it out"
            )
        if name == "is_training" and not value:
            raise OptionError("LMS: is_training is False; LMS is for training: leave it out")
        if name == "batch_size":
            self._engine.configure(batch_size=value)
        elif name == "autotune_gpu_mem":
            self._engine.configure(limit=_bytes(name, value))
        super().__setattr__(name, value)

    def run(self, graph: Any = None, keras: bool = False) -> None:
        """Serve what sessions run from now on, until `close`.

        Args:
            graph, keras: without effect: the graph is that of the session.

        Raises:
            LmsError: another LMS is active, or TensorFlow's optimizers are switched off.
        """
        self._engine.prepare()
        self._engine.start()

    def begin(self) -> None:
        """A monitored session begins."""
        self.run()

    def end(self, session: Any) -> None:
        """The monitored session ends: `run` is undone."""
        self.close()


LMSKerasCallback = LMSHook = LMSSessionRunHook = LMS  # TFLMS 1 had one for each


def _unless(auto: int, value: Any, least: int = 0, add: int = 0) -> Any:
    """None for `auto`; values that are not whole numbers as they are: `Options` refuses them."""
    if type(value) is not int:
        return value
    return None if value == auto else max(value, least) + add


def _bytes(name: str, size: Any) -> int | None:
    """Bytes of a number of GiB; None for 0 and None."""
    if isinstance(size, bool) or not isinstance(size, int | float | None) or (size or 0) < 0:
        raise OptionError(f"LMS: {name} is {size!r}; give a number of GiB")
    return round(size * (1 << 30)) if size else None
