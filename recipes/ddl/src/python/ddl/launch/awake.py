"""The time in which this process was awake, for ddlrun, rank.py and sweep.py: a few functions.

A batch system suspends jobs, and users stop them, while every clock of the system runs on. Whoever
waits for a moment of `now` looks at it at least every TICK seconds. More than MOST is not counted
between two looks: the process was stopped, or waited for nothing.
"""

import time

TICK = 1.0
MOST = 2 * TICK

_seen = time.monotonic()
_sum = 0.0


def now() -> float:
    """Seconds, from some moment on, in which this process was awake."""
    global _seen, _sum
    moment = time.monotonic()
    _sum += min(moment - _seen, MOST)
    _seen = moment
    return _sum


def until(moment: float) -> float:
    """Seconds to sleep at most before the next look, where `moment` is awaited; 0: it is over."""
    return min(TICK, max(0.0, moment - now()))
