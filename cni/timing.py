"""How long the stages of a request take, for whoever wants to know: `stage` is around the work, `told` around the request."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Tell = Callable[[str, float], None]  # a stage's name and seconds; must not block, and not raise

_tell: ContextVar[Tell] = ContextVar("tell", default=lambda _name, _seconds: None)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Tell how long the block took, however it ended; `name` is one of a few."""
    began = time.monotonic()
    try:
        yield
    finally:
        _tell.get()(name, time.monotonic() - began)


@contextmanager
def told(tell: Tell) -> Iterator[None]:
    """Have `tell` called for each stage within the block, and within tasks that are begun there."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)
