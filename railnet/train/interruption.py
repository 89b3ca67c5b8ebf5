"""Decides what Ctrl-C and SIGTERM do to a user's command."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that nothing half made is left, either."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with _handled(signal.SIGTERM, interrupt):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Neither Ctrl-C nor SIGTERM ends the block."""
    with _handled(signal.SIGINT, signal.SIG_IGN), _handled(signal.SIGTERM, signal.SIG_IGN):
        yield


@contextmanager
def _handled(number: signal.Signals, by: Callable[..., object] | signal.Handlers) -> Iterator[None]:
    before: Any = None
    with suppress(ValueError):  # only the main thread may
        before = signal.signal(number, by)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(number, before)
