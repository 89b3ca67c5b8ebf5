"""Which CNI folders the runtime uses, as its requests show; and the end of Railnet's files in folders that it uses no more.

The configuration may name folders that are not the runtime's. So a former folder is left only after a request that came by way of the present ones.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from cni.request import CniRequest
from railnet.configuration import HostConfiguration
from railnet.daemon.conflist.conflist import ConflistFolder
from railnet.install import former_folders
from railnet.kernel.threads.bounded_threads import BoundedThreads

_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 1.0
_SLOW_SECONDS = 5.0
_MOST_FOLDERS = 32  # a runtime has a few; what more requests name is of no use here


class CniFoldersInUse:
    """The folders of plugins that came with Railnet's present conflist."""

    def __init__(self, host: HostConfiguration) -> None:
        """Look at requests for the folders of `host`."""
        self._host, self._ours = host, ConflistFolder.of(host).ours
        self._plugin_folders = set[str]()
        self._threads = BoundedThreads(1)

    def note(self, request: CniRequest) -> None:
        """Look at a request: the runtime reads the conflist that it names, and looks for plugins in the folders of CNI_PATH."""
        if request.conf.conflist == self._ours and len(self._plugin_folders) < _MOST_FOLDERS:
            self._plugin_folders.update(request.environment.path)

    async def leave_former(self, active: Callable[[], bool]) -> None:
        """Take Railnet's files out of former folders as soon as the runtime uses the present ones, and `active` says that Railnet serves in them.

        A disk that hangs holds this task alone.

        Raises:
            OSError: as `former_folders.leave`.
        """
        while not (active() and self._plugin_folders and await self._left()):  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _left(self) -> bool:
        work = partial(former_folders.leave, self._host, frozenset(self._plugin_folders))
        call = self._threads.begin("former CNI folders", work)
        if not await call.ends_within(_SLOW_SECONDS):
            _log.warning(
                "the former CNI folders do not answer for %g s, so Railnet's files stay in them", _SLOW_SECONDS
            )
        left: bool = await call.future
        return left
