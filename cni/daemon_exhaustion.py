"""Shortages of the daemon's own: no descriptor, no memory or no thread is left for it. The executable may have what the daemon lacks.

A request that is known to be about rails fails with the kernel's words. Any other is handed back: the executable serves it alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM

ERRORS = (EAGAIN, EMFILE, ENFILE, ENOMEM, ENOBUFS)  # EAGAIN: no thread can be started


class HandedBack(Exception):
    """The daemon cannot serve a request that may be a plain pod's; nothing was done for it."""


def is_own_shortage(error: OSError) -> bool:
    """Return whether an error is about the daemon's own means, and not about what it was asked for."""
    return error.errno in ERRORS


@contextmanager
def handing_back() -> Iterator[None]:
    """Hand the request back if the daemon has a shortage within the block, which does nothing that must be undone.

    Raises:
        HandedBack: it has.
    """
    try:
        yield
    except OSError as error:
        if is_own_shortage(error):
            raise HandedBack(f"{error}; is the daemon's limit of descriptors, memory or threads too low?") from error
        raise
