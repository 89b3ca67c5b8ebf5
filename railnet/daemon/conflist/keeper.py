"""Keep Railnet's conflist in place while the daemon serves, so that the container runtime uses it.

The keeper compares the file's content once a second: this finds every change, replacement, move, and every file that sorts
before it, and costs a fifth of a millisecond. `railnet.daemon.conflist.conflist` decides the content.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from cni.cancellation_shield import to_the_end
from cni.host.errors import CniError
from cni.host.multus_circle import LeadsBack
from cni.primary_configuration import read_folder
from railnet.configuration import Configuration
from railnet.daemon.conflist import conflist, foreign_plugins
from railnet.daemon.conflist.conflist import Beside, ConflistFolder
from railnet.daemon.conflist.foreign_plugins import ForeignPlugins
from railnet.daemon.conflist.foreign_rewrites import ConflistRewrites
from railnet.daemon.kubelet_folder import KubeletSearch
from railnet.errors import Misconfigured
from railnet.kernel.files import read_below, write_atomically
from railnet.kubelet.root_folder import KubeletFolder

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_SAY_AGAIN_SECONDS = 5.0
_SLOW_SECONDS = 5.0
_HALF_WRITTEN_SECONDS = 0.1


class ConflistKeeper:
    """The conflist of one node; only `serve` writes it."""

    leaves = False
    why_inactive: str | None = "Railnet's configuration is not written yet"
    """Why the runtime would start pods without their rails; None if the runtime uses the conflist."""

    trouble: str | None = None
    """Why the conflist may not fit the node's primary network; None if it fits."""

    rewrites: str | None = None
    """That another program changes the conflist again and again; None if none does."""

    def __init__(
        self,
        configuration: Configuration,
        kubelet: Callable[[], KubeletFolder | None] | None = None,
    ) -> None:
        """Keep the conflist of the host seen at `host.root`. `kubelet` returns kubelet's root folder; None if it is not known yet."""
        self._configuration = configuration
        self._folder = ConflistFolder.of(configuration.host)
        self._kubelet = kubelet or KubeletSearch(configuration.host).known
        self._foreign = ForeignPlugins()
        self._rewrites = ConflistRewrites()
        self._said, self._said_at = "", 0.0

    async def serve(self, changed: Callable[[], None]) -> None:
        """Write the conflist whenever it is absent or its content is not the right one; until cancelled.

        Args:
            changed: called when `why_inactive` has.
        """
        while True:
            before = self.why_inactive
            # In a thread, since a disk may be slow; and after a cancellation nothing is written any more.
            slow = asyncio.get_running_loop().call_later(_SLOW_SECONDS, self._is_slow)
            try:
                await to_the_end(asyncio.to_thread(self.look))
            finally:
                slow.cancel()
            if self.why_inactive != before:
                changed()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Compare once, and write if the content differs. A host that refuses is `trouble`, not an exception.

        `why_inactive` stays as it was while the folder cannot be read.
        """
        now = time.monotonic()
        self._rewrites.look(conflist.signature(self._folder), now)
        unwritten, unseen = self._trouble(self._write), self._trouble(self._see)
        self.trouble = unwritten or unseen
        self._warn_of_rewrites()
        self._say(self.trouble or self.why_inactive or "", now)

    def _warn_of_rewrites(self) -> None:
        """Log once that another program changes the file again and again, and once that it has stopped."""
        if self._rewrites.warning == self.rewrites:
            return
        if self.rewrites is None:
            _log.warning("%s", self._rewrites.warning)
        elif self._rewrites.warning is None:
            _log.info("%s is left alone by other programs again", self._folder.ours)
        self.rewrites = self._rewrites.warning

    def _trouble(self, act: Callable[[], None]) -> str | None:
        """Do one step; return why it failed, None if it did not."""
        try:
            act()
        except (Misconfigured, ValueError) as error:  # ValueError: `primary` has a NUL
            return str(error)
        except RecursionError:
            return f"{self._folder.ours}, or the primary's configuration, is nested too deeply: remove what is in it"
        except OSError as error:
            what = self._folder.path if error.filename is None else error.filename
            return f"{what}: {error.strerror or error}; Railnet's configuration stays as it is, and it is tried again every second"
        return None

    def _see(self) -> None:
        self.why_inactive = conflist.why_inactive(self._folder)

    def _is_slow(self) -> None:
        self.trouble = (
            f"{self._folder.path} does not answer for {_SLOW_SECONDS:g} s: Railnet cannot see whether the container runtime "
            "uses its configuration; look at the disk or the server that has this folder"
        )
        self._say(self.trouble, time.monotonic())

    def _write(self) -> None:
        """Write the conflist, unless it has the right content.

        Raises:
            Misconfigured, OSError: the right content is not known; the present file stays, as the last good one.
        """
        folder = self._folder
        primary = conflist.find_primary(folder, self._configuration)
        present_content = self._present()
        content = self._right_content(primary, present_content)
        if conflist.says_the_same(present_content, content) or conflist.read(folder) != present_content:
            return  # in the second case a program writes at this moment, and the next look finds what it wrote
        write_atomically(folder.reached() / conflist.NAME, content, durable=True)
        self._rewrites.note_own(conflist.signature(folder))
        self._foreign = foreign_plugins.parse(content) or self._foreign
        _log.log(
            logging.DEBUG if self._rewrites.warning else logging.INFO,
            "%s %s: Railnet before %s",
            folder.ours,
            "was absent and is written" if present_content is None else "is written anew",
            primary,
        )

    def _right_content(self, primary: str, present_content: bytes | None) -> bytes:
        """Compose the conflist; what other programs appended is taken from the present one, or from the last one that was whole."""
        present = None if present_content is None else foreign_plugins.parse(present_content)
        if present is not None:
            self._foreign = present
        if self._configuration.primary is not None:
            self._require_no_circle(primary)
        self._require_plugins(primary)
        root = self._folder.root
        beside = Beside(self._foreign, conflist.copied_plugins(self._folder, primary), partial(read_folder, root))
        known = self._kubelet()
        # A conflist of an earlier daemon has the folder that this one finds later: without the daemon, a pod's claims are looked for there.
        kubelet = str(known.path) if known is not None else conflist.named_kubelet(present_content)
        return conflist.compose(read_below(root, primary), primary, self._configuration, beside, kubelet)

    def _require_no_circle(self, primary: str) -> None:
        """Make sure that a configured primary does not lead back to Railnet; the others were looked at when one was chosen."""
        try:
            conflist.require_no_circle(self._folder, primary)
        except LeadsBack as error:
            raise Misconfigured(str(error)) from None
        except CniError:
            return  # `compose` reports it

    def _require_plugins(self, primary: str) -> None:
        try:
            conflist.require_plugins(self._configuration.host, primary)
        except CniError:
            return  # `compose` reports it

    def _present(self) -> bytes | None:
        """Read the conflist. A file that is not whole may be half written: it is read once more, after a while."""
        content = conflist.read(self._folder)
        if content is None or foreign_plugins.parse(content) is not None:
            return content
        time.sleep(_HALF_WRITTEN_SECONDS)
        return conflist.read(self._folder)

    def _say(self, trouble: str, now: float) -> None:
        """Log trouble when it begins, every few seconds while it lasts, and when it is over."""
        if trouble == self._said and (not trouble or now - self._said_at < _SAY_AGAIN_SECONDS):
            return
        if trouble:
            _log.warning("%s", trouble)
        else:
            _log.info("the container runtime uses Railnet's configuration")
        self._said, self._said_at = trouble, now
