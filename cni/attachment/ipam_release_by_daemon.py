"""Release addresses of a sandbox's rails without a request: the daemon itself runs the IPAM plugin's DEL, then removes the record.

A request's DEL runs the plugin by its executable (`cni.verbs.delete`).
"""

import threading
from functools import partial

from cni.attachment import ipam_plugin
from cni.attachment.journal import Journal
from cni.cancellation_shield import until_stopped
from cni.host import lock
from cni.host_delegates import HostDelegates
from railnet.vf.record import Record, RecordedIpam


class IpamRelease:
    """The last step of taking a sandbox back."""

    def __init__(self, journal: Journal, delegates: HostDelegates) -> None:
        self._journal = journal
        self._delegates = delegates

    async def finish(self, left: Record) -> None:
        """Release the addresses of a record without rails, once no process of the sandbox's executable runs; remove the record.

        Raises:
            CniError: the plugin failed, or such a process still runs. The record stays for another try.
        """
        if left.ipam is not None:
            await until_stopped(partial(self._release, left, left.ipam))
        self._journal.remove(left)

    def _release(self, left: Record, plugin: RecordedIpam, stopped: threading.Event) -> None:
        """Run the plugin's DEL. Blocks, also for the lock, whose holders are searched in all of /proc."""
        path = self._delegates.lock_of(left.key)
        held = lock.acquire_if_possible(path)
        try:
            self._delegates.run(ipam_plugin.delete(plugin), left, plugin.path, held, stopped)
        finally:
            for fd in held:
                lock.remove(path, fd)
