"""Loads LMS into TensorFlow's graph optimizer, and lets one engine at a time have the graphs.

TensorFlow calls the plugin while it makes a graph ready, from any thread and without the GIL;
ctypes takes the GIL for the planner. TensorFlow itself gives it up while it waits for a graph, so
that the two do not lock each other out.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorflow.python.framework import load_library

from lms_tensorflow.errors import LmsError

#: Makes another serialized GraphDef of one, in a round of TensorFlow's optimizers (the first is 1),
#: or None to leave it as it is. It must not raise.
Optimize = Callable[[bytes, int], bytes | None]

_PATH = Path(__file__).with_name("_plugin.so")
_PLANNER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)

_lock = threading.Lock()
_library: Any = None
_loaded_for = ""
_current: Optimize | None = None


def load(device_type: str) -> None:
    """Load the plugin for the graphs of a type of device, "GPU" or "CPU".

    Raises:
        LmsError: the plugin is not there or cannot be loaded, or was loaded for another type.
    """
    global _library, _loaded_for
    with _lock:
        if _loaded_for:
            if _loaded_for != device_type:
                raise LmsError(
                    f"LMS: this process swaps from a {_loaded_for} already, and TensorFlow asks "
                    f"one type of device per process; use another process for a {device_type}"
                )
            return
        if not _PATH.exists():
            raise LmsError(f"LMS: {_PATH} is missing; install the package lms-tensorflow again")
        try:
            library = ctypes.CDLL(str(_PATH))
            library.lms_set_device_type(device_type.encode())
            load_library.load_pluggable_device_library(str(_PATH))
        except (OSError, RuntimeError, AttributeError) as error:
            raise LmsError(
                f"LMS: TensorFlow cannot load {_PATH}: {error}; install lms-tensorflow again, for "
                "this version of TensorFlow"
            ) from None
        library.lms_reply.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
        _library, _loaded_for = library, device_type
        atexit.register(library.lms_set_planner, None)  # no Python to call after that


def start(optimize: Optimize) -> None:
    """Give the graphs to this one from now on.

    Raises:
        LmsError: another has them.
    """
    global _current
    with _lock:
        if _current is not None:
            raise LmsError(
                "LMS: another LMS is active in this process; let its step or `with` end, or call "
                "its `close()` where nothing ends it"
            )
        _current = optimize
        _library.lms_set_planner(_planner)


def stop(optimize: Optimize) -> None:
    """Leave graphs alone again; nothing happens where it does not have them."""
    global _current
    with _lock:
        if _current == optimize:
            _current = None
            _library.lms_set_planner(None)


def _plan(graph: int, size: int, round_: int, reply: int) -> None:
    optimize = _current
    answer = optimize(ctypes.string_at(graph, size), round_) if optimize else None
    if answer is not None:
        _library.lms_reply(reply, answer, len(answer))


_planner = _PLANNER(_plan)  # kept for good: TensorFlow's threads may still be in it after `stop`
