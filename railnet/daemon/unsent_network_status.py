"""Send the `network-status` of pods again to which the daemon before this one attached rails: it may have ended with the message unsent.

The names of a job lead to the addresses in that annotation, so a pod without it has no name. The container runtime's cache has the primary network's
result of each ADD, and says when the runtime had it.
"""

import json
import logging
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from cni import libcni_cache
from cni.host.netconf import ANNOTATIONS
from cni.rail_observers import Observer, RailsAttached
from cni.request import is_static
from railnet.kernel.foreign_state_files import Entry, entries
from railnet.kernel.threads.file_reads import read_in_time
from railnet.vf.record import Record

_log = logging.getLogger(__name__)
YOUNG_SECONDS = 600.0
"""So long an outbox tries to send a message (`railnet.apiserver.outbox`); what is older was sent or given up."""


async def send_again(root: Path, records: Iterable[Record], observe: Observer) -> None:
    """Tell `observe` of the ADDs of the last ten minutes; called before any request is served, so that no newer ADD is replaced.

    Args:
        root: the path of the host's root folder.
        records: the journal's.
        observe: sends the messages.
    """
    now = time.time()
    # A node that crashed often may have many thousands of stale files.
    young = partial(entries, root, libcni_cache.FOLDER, now - YOUNG_SECONDS)
    try:
        files = await read_in_time(libcni_cache.FOLDER, young)
    except OSError as error:
        _log.warning("messages that the daemon before this one did not send are lost: %s", error)
        return
    for event in attached_lately(records, files, now):
        observe(event)


def attached_lately(records: Iterable[Record], files: Iterable[Entry], now: float) -> list[RailsAttached]:
    """Return the ADDs with rails that the runtime was answered in the last ten minutes before `now` (`time.time`), the oldest first."""
    attached = {record.key: record for record in records if record.stage == "attached" and not record.rebuilt}
    answered = []
    for file in sorted(files, key=lambda file: file.modified):
        if file.modified < now - YOUNG_SECONDS:
            continue
        try:
            add = libcni_cache.parse(file.content)
            record = attached.get(add.key)
            if record is not None and record.pod == add.pod and add.network == record.primary["conf"]["name"]:
                static = is_static(dict(add.runtime_config.get(ANNOTATIONS) or {}))
                answered.append(RailsAttached(record, json.dumps(add.result).encode(), static))
        except (ValueError, TypeError):  # another program's file
            continue
    return answered
