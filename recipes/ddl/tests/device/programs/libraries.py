"""The libraries that this process has, by their C interfaces; libddl is ready."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ddl


def loaded(part: str) -> ctypes.CDLL:
    """The library with that in its path."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return ctypes.CDLL(next(line.split()[-1] for line in maps if part in line))


ddl.init()
LIBDDL = loaded("/libddl.so")
LIBDDL.ddl_last_error.restype = ctypes.c_char_p
