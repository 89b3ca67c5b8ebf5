"""Measure the stages of a request: `timed` encloses the work of one stage, `reported_to` encloses the whole request.

The function that gets the seconds is a context variable, so that a stage deep in the work needs no parameter for it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Report = Callable[[str, float], None]  # takes a stage's name and its seconds; must not block, and must not raise

_report: ContextVar[Report] = ContextVar("report", default=lambda _name, _seconds: None)


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Report how long the block took, however it ended; `name` is one of a few."""
    began = time.monotonic()
    try:
        yield
    finally:
        _report.get()(name, time.monotonic() - began)


@contextmanager
def reported_to(report: Report) -> Iterator[None]:
    """Call `report` for each stage within the block, and within tasks that the block begins."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)
