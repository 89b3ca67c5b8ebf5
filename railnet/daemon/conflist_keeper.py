"""Keep Railnet's conflist in place while the daemon serves, so that the container runtime uses it.

The keeper compares the file's content once a second: this finds every change, replacement, move, and every file that sorts
before it, and costs a fifth of a millisecond. `railnet.daemon.conflist` decides the content.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from cni.cancellation_shield import to_the_end
from kernel.files import below, read_below, write_atomically
from railnet.configuration import Configuration
from railnet.daemon import conflist
from vf.errors import Misconfigured

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_SAY_AGAIN_SECONDS = 5.0


class ConflistKeeper:
    """The conflist of one node; only `serve` writes it."""

    why_inactive: str | None = "Railnet's configuration is not written yet"
    """Why the runtime would start pods without their rails; None if the runtime uses the conflist."""

    trouble: str | None = None
    """Why the conflist may not fit the node's primary network; None if it fits."""

    def __init__(self, configuration: Configuration) -> None:
        """Keep the conflist of the host seen at `host.root`."""
        self._configuration = configuration
        self._said, self._said_at = "", 0.0

    async def serve(self, changed: Callable[[], None]) -> None:
        """Write the conflist whenever it is absent or its content is not the right one; until cancelled.

        Args:
            changed: called when `why_inactive` has.
        """
        while True:
            before = self.why_inactive
            # In a thread, since a disk may be slow; and after a cancellation nothing is written any more.
            await to_the_end(asyncio.to_thread(self.look))
            if self.why_inactive != before:
                changed()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Compare once, and write if the content differs. A host that refuses is `trouble`, not an exception."""
        root = self._configuration.host.root
        self.trouble = None
        try:
            self._write(root)
        except (Misconfigured, OSError, ValueError) as error:  # ValueError: `primary` has a NUL
            self.trouble = str(error)
        self.why_inactive = conflist.why_inactive(root)
        self._say(self.trouble or self.why_inactive or "")

    def _write(self, root: Path) -> None:
        """Write the conflist, unless it has the right content.

        Raises:
            Misconfigured, OSError: the right content is not known; the present file stays, as the last good one.
        """
        primary = conflist.find_primary(root, self._configuration)
        content = conflist.compose(read_below(root, primary), primary, self._configuration)
        found = conflist.read(root)
        if found == content:
            return
        write_atomically(below(root, f"{conflist.FOLDER}/{conflist.NAME}"), content, durable=True)
        _log.info(
            "%s/%s %s: Railnet before %s",
            conflist.FOLDER,
            conflist.NAME,
            "was absent and is written" if found is None else "is written anew",
            primary,
        )

    def _say(self, trouble: str) -> None:
        """Log trouble when it begins, every few seconds while it lasts, and when it is over."""
        now = time.monotonic()
        if trouble == self._said and (not trouble or now - self._said_at < _SAY_AGAIN_SECONDS):
            return
        if trouble:
            _log.warning("%s", trouble)
        else:
            _log.info("the container runtime uses Railnet's configuration")
        self._said, self._said_at = trouble, now
