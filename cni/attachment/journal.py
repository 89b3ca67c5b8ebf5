"""The journal: one record for each sandbox with rails, on a tmpfs. Files only; what a record says is `railnet.vf.record`'s.

A record is written before the kernel is changed, and removed after the last undo. The daemon is the only writer, so memory
and disk are the same; the disk is read once, at start.

Taking back needs no new space: if the disk is full, a record that is on disk already is changed in place (docs/decisions/0044).
"""

import logging
import time
from collections.abc import Iterable
from errno import EAGAIN, EMFILE, ENFILE, ENOMEM
from pathlib import Path

from railnet.kernel.files import NO_ROOM, overwrite, read_regular, unlink, write_atomically
from railnet.vf.address_slice import IpAddress
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import LostRecord, Netns, Record, UnreadableRecord, decode, encode, encode_compactly, find_lost

_log = logging.getLogger(__name__)
_MOST_BYTES = 1 << 20  # a record names its sandbox at its beginning
_MOST_IN_QUARANTINE = 100  # files; the oldest go first, since /run is memory
_MOST_RECORD_BYTES = 1 << 24  # a record quotes its request's configuration, which is smaller than a frame
# The daemon lacks something, and nothing is wrong with the file: a later start may read it.
_NOT_THE_FILES_FAULT = (EAGAIN, EMFILE, ENFILE, ENOMEM)


class Journal:
    """The records in `folder`; an unreadable one is moved to `quarantine`. Both folders are made if absent.

    `lost_records` names the sandboxes of the records in quarantine, of this start and of earlier ones.
    """

    def __init__(self, folder: Path, quarantine: Path) -> None:
        """Read every record. A file or folder that is no record costs nothing but itself.

        Raises:
            OSError: the folders cannot be made or read, or the daemon has no descriptors or memory.
        """
        for needed in (folder, quarantine):
            needed.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._quarantine = quarantine
        self._records: dict[str, Record] = {}
        self._written_at: dict[str, float] = {}
        self.lost_records: tuple[LostRecord, ...] = ()
        for temporary in folder.glob(".*"):  # of a write that a crash interrupted
            _remove(temporary)
        for path in sorted(folder.glob("[!.]*.json")):
            self._read(path)
        self.lost_records = _lost_records(quarantine)

    def records(self) -> Iterable[Record]:
        """Return all records, as they are now."""
        return tuple(self._records.values())

    def get(self, key: str) -> Record | None:
        """Find the record of a key, `<container id>@<ifname>`."""
        return self._records.get(key)

    def write(self, record: Record) -> None:
        """Write a record; it is on disk when this returns.

        Raises:
            OSError: the folder is missing, or full and the record is new or longer than before. Memory and disk stay as they were.
        """
        try:
            write_atomically(self._path(record.key), encode(record))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._write_in_place(record, error)
        self._keep(record)

    def age(self, record: Record) -> float:
        """Return how many seconds ago a record was written, or read at start."""
        return time.monotonic() - self._written_at[record.key]

    def remove(self, record: Record) -> None:
        """Remove a record; nothing happens if it is removed already."""
        self._path(record.key).unlink(missing_ok=True)
        self._records.pop(record.key, None)
        self._written_at.pop(record.key, None)

    def quarantine(self, record: Record, why: str) -> None:
        """Put a record aside that another record contradicts: its sandbox's rails are known from the kernel alone from now on."""
        path = self._path(record.key)
        remedy = "it is kept as %s, for you to look at and to delete; its pod, if it still runs, should be deleted"
        _log.error(f"journal: %s is not believed: %s; {remedy}", path, why, self._put_aside(path))
        self._records.pop(record.key)
        self._written_at.pop(record.key)
        self.lost_records += (LostRecord(record.container_id, record.ifname, record.netns, record.pod),)

    def quarantined(self) -> tuple[Path, ...]:
        """Return the files in quarantine, the one that was put there first first: a rename sets a file's ctime."""
        files = [path for path in self._quarantine.iterdir() if path.is_file()]
        return tuple(sorted(files, key=lambda path: path.stat().st_ctime_ns))

    def changed_at(self, record: Record) -> float:
        """Return when a record's file was last written, in seconds since the epoch; 0 if there is no file."""
        try:
            return self._path(record.key).stat().st_mtime
        except FileNotFoundError:
            return 0

    def holder(self, vf: PciAddress) -> Record | None:
        """Find the record that has a VF among its rails."""
        return next(
            (record for record in self._records.values() for attachment in record.attachments if attachment.vf == vf),
            None,
        )

    def rebuilt(self, netns: Netns | None, ifname: str) -> Record | None:
        """Find the rebuilt record of a namespace, for the attachment with this CNI_IFNAME."""
        if netns is None:
            return None
        records = (record for record in self._records.values() if record.rebuilt and record.ifname == ifname)
        return next((record for record in records if record.netns[1:] == netns[1:]), None)

    def addresses(self) -> frozenset[IpAddress]:
        """Return all addresses on the rails of this node's sandboxes: the journal is the allocation table."""
        return frozenset(
            address.ip
            for record in self._records.values()
            for attachment in record.attachments
            for address in attachment.addresses
        )

    def _write_in_place(self, record: Record, full: OSError) -> None:
        """Change a record that is on disk already, without new space.

        A daemon that is killed within this one write(2) may leave an unreadable record; the kernel then shows what it said.
        """
        path = self._path(record.key)
        try:
            overwrite(path, encode_compactly(record))
        except OSError:
            why = "it has no room for another file: free space or inodes there, and the runtime tries again"
            raise OSError(
                full.errno, f"{full.strerror}; {why} (`df /run/railnet; df -i /run/railnet`)", str(path)
            ) from full

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _read(self, path: Path) -> None:
        try:
            record = decode(read_regular(path, _MOST_RECORD_BYTES))
            # A copy under another name would never be removed, and would claim the VFs again at each start.
            if path != self._path(record.key):
                raise UnreadableRecord(f"it is a copy of the record of {record.key}")
        except UnreadableRecord as error:
            self._set_unreadable_aside(path, str(error))
        except OSError as error:
            if error.errno in _NOT_THE_FILES_FAULT:
                raise
            self._set_unreadable_aside(path, error.strerror or str(error))
        else:
            self._keep(record)

    def _set_unreadable_aside(self, path: Path, why: str) -> None:
        try:
            kept = self._put_aside(path)
        except OSError as error:
            _log.error(
                "journal: %s cannot be read (%s) nor moved to %s (%s); it is left out: remove it",
                path,
                why,
                self._quarantine,
                error.strerror,
            )
        else:
            _log.error("journal: %s cannot be read (%s); it is kept as %s", path, why, kept)

    def _put_aside(self, path: Path) -> Path:
        """Move a file to the quarantine, which needs no new space there, and return its new path."""
        kept = self._quarantine / path.name
        path.replace(kept)
        # Files that came within one tick of the kernel's clock have one ctime, so this one need not be the last.
        others = [other for other in self.quarantined() if other != kept]
        for oldest in others[: 1 - _MOST_IN_QUARANTINE]:
            _remove(oldest)
        return kept

    def _keep(self, record: Record) -> None:
        self._records[record.key] = record
        self._written_at[record.key] = time.monotonic()


def _remove(temporary: Path) -> None:
    try:
        unlink(temporary)
    except OSError as error:
        _log.error("journal: %s is no record and stays (%s); remove it", temporary, error.strerror)


def _lost_records(quarantine: Path) -> tuple[LostRecord, ...]:
    lost_records = []
    for path in sorted(quarantine.iterdir()):
        _log.warning("journal: %s could not be read; its sandbox's rails are known from the kernel alone", path)
        lost = find_lost(path.name, _beginning(path))
        lost_records += [] if lost is None else [lost]
    return tuple(lost_records)


def _beginning(path: Path) -> bytes:
    """Read as much as names a sandbox; nothing of a folder, a pipe or a file that cannot be read."""
    try:
        return read_regular(path, _MOST_RECORD_BYTES)[:_MOST_BYTES]
    except OSError:
        return b""
