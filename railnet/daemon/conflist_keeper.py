"""Keep Railnet's CNI configuration the one that the container runtime uses, for as long as the daemon serves.

It is looked at once a second, by its content: that sees every way in which a file may change, be replaced, moved or hidden
by another, and costs a fifth of a millisecond. Which content it should have is `railnet.daemon.conflist_content`'s.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from kernel.files import below, read_below, write_atomically
from railnet.configuration import Configuration
from railnet.daemon import conflist_content
from vf.errors import Misconfigured

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_SAY_AGAIN_SECONDS = 5.0


class ConflistKeeper:
    """One node's configuration of the runtime; only `serve` writes."""

    why_inactive: str | None = "Railnet's configuration is not written yet"
    """Why the runtime would start pods without their rails; None if it would not."""

    trouble: str | None = None
    """Why what is written may not fit the node's primary network; None if it does."""

    def __init__(self, configuration: Configuration) -> None:
        """Look at the host seen at `host.root`."""
        self._configuration = configuration
        self._said, self._said_at = "", 0.0

    async def serve(self, changed: Callable[[], None]) -> None:
        """Write it, and again whenever it should be another one or is no more; until cancelled.

        Args:
            changed: called when `why_inactive` has.
        """
        while True:
            before = self.why_inactive
            await self._look_to_the_end()
            if self.why_inactive != before:
                changed()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look_to_the_end(self) -> None:
        """Look in a thread, since a disk may be slow; nothing is written any more after a cancellation."""
        looking = asyncio.ensure_future(asyncio.to_thread(self.look))
        try:
            await asyncio.shield(looking)
        except asyncio.CancelledError:
            await asyncio.wait((looking,))
            raise

    def look(self) -> None:
        """Look once, and write if something else should stand there; a host that refuses is trouble, not an error."""
        root = self._configuration.host.root
        self.trouble = None
        try:
            self._write(root)
        except (Misconfigured, OSError, ValueError) as error:  # ValueError: `primary` has a NUL
            self.trouble = str(error)
        self.why_inactive = conflist_content.why_inactive(root)
        self._say(self.trouble or self.why_inactive or "")

    def _write(self, root: Path) -> None:
        """Write what should stand there, unless it does.

        Raises:
            Misconfigured, OSError: nobody knows what should; what is there stays, as the last that was good.
        """
        primary = conflist_content.find_primary(root, self._configuration)
        content = conflist_content.compose(read_below(root, primary), primary, self._configuration)
        found = conflist_content.read(root)
        if found == content:
            return
        write_atomically(below(root, f"{conflist_content.FOLDER}/{conflist_content.NAME}"), content, durable=True)
        _log.info(
            "%s/%s %s: Railnet before %s",
            conflist_content.FOLDER,
            conflist_content.NAME,
            "was absent and is written" if found is None else "is written anew",
            primary,
        )

    def _say(self, trouble: str) -> None:
        """Say what is wrong when it begins, and every few seconds; and when it is over."""
        now = time.monotonic()
        if trouble == self._said and (not trouble or now - self._said_at < _SAY_AGAIN_SECONDS):
            return
        if trouble:
            _log.warning("%s", trouble)
        else:
            _log.info("the container runtime uses Railnet's configuration")
        self._said, self._said_at = trouble, now
