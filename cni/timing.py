"""Measure the stages of a request: `timed` encloses the work of one stage, `reported_to` encloses the whole request.

The function that gets the seconds is a context variable, so that a stage deep in the work needs no parameter for it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

Report = Callable[[str, float], None]  # takes a stage's name and its seconds; must not block, and must not raise

_report: ContextVar[Report] = ContextVar("report", default=lambda _name, _seconds: None)


class _Timed(AbstractContextManager[None]):
    """The block of `timed`. A pod enters eight: a generator for each costs twice as much."""

    __slots__ = ("_began", "_name")

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        _report.get()(self._name, time.monotonic() - self._began)


def timed(name: str) -> AbstractContextManager[None]:
    """Report how long the block took, however it ended; `name` is one of a few."""
    return _Timed(name)


@contextmanager
def reported_to(report: Report) -> Iterator[None]:
    """Call `report` for each stage within the block, and within tasks that the block begins."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)
