"""An all-to-all as of experts, of which some are asked more often; for its worker and its bound."""

from __future__ import annotations

SKEW = 8
HOT = 2


def weights(size: int) -> list[int]:
    """What each rank gets of everybody: the first HOT of them SKEW times as much as the others."""
    return [SKEW if rank < HOT else 1 for rank in range(size)]
