"""What every sandbox on this node has of ours, on a tmpfs: written before the act, removed after the last undo.

The daemon is the only writer, so memory and disk are the same; the disk is read once, at start.
"""

import logging
import time
from collections.abc import Iterable
from pathlib import Path

from kernel.files import write_atomically
from vf.address import PciAddress
from vf.address_slice import IpAddress
from vf.record import Record, Trace, Unreadable, decode, encode, trace

_log = logging.getLogger(__name__)
_MOST_BYTES = 1 << 20  # whose a record is stands at its beginning


class Journal:
    """The records below `folder`; what cannot be read goes to `quarantine`, both made if absent.

    `traces` say whose those were that could not be read, now or before.
    """

    def __init__(self, folder: Path, quarantine: Path) -> None:
        """Read every record.

        Raises:
            OSError: the folders cannot be made or read.
        """
        for needed in (folder, quarantine):
            needed.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._records: dict[str, Record] = {}
        self._written_at: dict[str, float] = {}
        self.traces: tuple[Trace, ...] = ()
        for temporary in folder.glob(".*"):  # of a write that a crash cut short
            temporary.unlink()
        for path in sorted(folder.glob("[!.]*.json")):
            self._read(path, quarantine)
        self.traces = _traces(quarantine)

    def records(self) -> Iterable[Record]:
        """Give every record, as of now."""
        return tuple(self._records.values())

    def get(self, key: str) -> Record | None:
        """Find the record of `<container id>@<ifname>`."""
        return self._records.get(key)

    def write(self, record: Record) -> None:
        """Keep a record; it is on disk when this returns."""
        write_atomically(self._path(record.key), encode(record))
        self._keep(record)

    def age(self, record: Record) -> float:
        """Give how many seconds ago a record was written, or read at start."""
        return time.monotonic() - self._written_at[record.key]

    def remove(self, record: Record) -> None:
        """Forget a record; one that is not there is forgotten already."""
        self._path(record.key).unlink(missing_ok=True)
        self._records.pop(record.key, None)
        self._written_at.pop(record.key, None)

    def holder(self, vf: PciAddress) -> Record | None:
        """Find the record that has a VF."""
        return next((record for record in self._records.values() for one in record.attachments if one.vf == vf), None)

    def addresses(self) -> frozenset[IpAddress]:
        """Give every address a sandbox of this node has on its rails: this is the allocation table."""
        return frozenset(
            address.ip for record in self._records.values() for one in record.attachments for address in one.addresses
        )

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _read(self, path: Path, quarantine: Path) -> None:
        try:
            record = decode(path.read_bytes())
            # `remove` would never find a copy, and at each start it would own the VFs again.
            if path != self._path(record.key):
                raise Unreadable(f"it is the record of {record.key}")
        except Unreadable as error:
            path.replace(quarantine / path.name)
            _log.error("journal: %s cannot be read (%s); it is kept as %s", path, error, quarantine / path.name)
            return
        self._keep(record)

    def _keep(self, record: Record) -> None:
        self._records[record.key] = record
        self._written_at[record.key] = time.monotonic()


def _traces(quarantine: Path) -> tuple[Trace, ...]:
    traces = []
    for path in sorted(path for path in quarantine.iterdir() if path.is_file()):  # who has looked may have made folders
        _log.warning("journal: %s could not be read; what its sandbox has is known from the kernel alone", path)
        found = trace(path.name, path.read_bytes()[:_MOST_BYTES])
        traces += [] if found is None else [found]
    return tuple(traces)
