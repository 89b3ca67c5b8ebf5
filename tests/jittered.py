"""What a pause with jitter equals in a test: everything from half of the pause without jitter up to, and without, that pause.

The intervals of successive doublings do not overlap: a pause equals one of them alone.
"""

from typing import Any


class _Jittered:
    def __init__(self, whole: float) -> None:
        self._whole = whole

    def __eq__(self, found: object) -> bool:
        return isinstance(found, float) and self._whole / 2 <= found < self._whole

    __hash__ = None  # equal to many numbers

    def __repr__(self) -> str:
        return f"{self._whole / 2:g} to {self._whole:g}"


def jittered(whole: float) -> Any:
    """Return what equals each pause that `railnet.backoff` makes of `whole` seconds."""
    return _Jittered(whole)
