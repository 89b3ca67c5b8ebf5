"""The tests of `railnet train` leave the loggers as they found them."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def informers_log() -> Iterator[None]:
    """Undo what `LiveObjects` does for the whole process: tests of informers look at the informers' log."""
    log = logging.getLogger("railnet.controllers.informer")
    level = log.level
    yield
    log.setLevel(level)
