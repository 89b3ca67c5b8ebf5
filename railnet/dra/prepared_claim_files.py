"""The records of prepared claims, one file for each on a tmpfs; what a record says is `railnet.dra.prepared_claim`'s.

A record is written before kubelet gets its answer, and removed after kubelet has asked to unprepare the claim. The daemon is the only
writer, so memory and disk are the same; the disk is read once, at start. After a reboot kubelet asks to prepare each claim again, so a record
need not survive a power cut. The rename is the last step of a write: were the folder synced after it, a refused sync would leave a record that
memory does not know, and another claim could get the same VF. The folder is there only while it has a record, so that a version that knows no
claims leaves nothing over on a node that goes back to it.
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from cni.daemon_exhaustion import is_own_shortage
from railnet.dra.prepared_claim import PreparedClaim, PreparedRequest, UnreadableClaim, decode, encode
from railnet.kernel.files import read_regular, unlink, write_atomically
from railnet.kubelet.checkpointed_responses import ContainerAllocation
from railnet.vf.pci_address import PciAddress

_log = logging.getLogger(__name__)
_MOST_BYTES = 1 << 20
_RECORD, _UNREADABLE = ".json", ".unreadable"


class PreparedClaims:
    """The prepared claims of this node."""

    def __init__(self, folder: Path) -> None:
        """Read every record. A file that is no record is put aside under another name: only Unprepare removes it.

        Raises:
            OSError: the folder cannot be read, or the daemon has no descriptors or memory: that is no fault of a record.
        """
        self._folder = folder
        self._claims: dict[str, PreparedClaim] = {}
        self._users: Mapping[PciAddress, str] = {}
        for temporary in folder.glob(".*"):  # of a write that a crash interrupted
            _remove(temporary)
        for path in sorted(folder.glob(f"[!.]*{_RECORD}")):
            self._read(path)
        self._note_users()
        self._remove_empty_folder()

    def __len__(self) -> int:
        """Return how many claims are prepared."""
        return len(self._claims)

    @property
    def need_the_driver(self) -> bool:
        """Return whether kubelet will ask to unprepare a claim: one that is prepared, or one of an unreadable record."""
        return bool(self._claims) or any(self._folder.glob(f"*{_UNREADABLE}"))

    @property
    def uids(self) -> frozenset[str]:
        """The UIDs of the claims."""
        return frozenset(self._claims)

    @property
    def uids_on_disk(self) -> frozenset[str]:
        """The same with the claims of unreadable records: their pods may run, and a container that starts again needs its CDI file."""
        return self.uids | {path.stem for path in self._folder.glob(f"[!.]*{_UNREADABLE}")}

    @property
    def users(self) -> Mapping[PciAddress, str]:
        """Why the VFs of prepared claims must not be given to others: another object after each change."""
        return self._users

    def users_but(self, uid: str) -> Mapping[PciAddress, str]:
        """Return the same without the VFs of one claim."""
        claim = self._claims.get(uid)
        own = frozenset(() if claim is None else claim.vfs)
        return {vf: user for vf, user in self._users.items() if vf not in own}

    def all(self) -> tuple[PreparedClaim, ...]:
        """Return all claims."""
        return tuple(self._claims.values())

    def get(self, uid: str) -> PreparedClaim | None:
        """Find the record of a claim."""
        return self._claims.get(uid)

    def with_any(self, vfs: Collection[PciAddress]) -> list[PreparedClaim]:
        """Return the claims that have at least one of these VFs."""
        return [claim for claim in self._claims.values() if any(vf in vfs for vf in claim.vfs)]

    def allocations(self, uid: str) -> tuple[ContainerAllocation, ...]:
        """Return what the containers of a claim got, by request; nothing if the claim is not recorded."""
        claim = self._claims.get(uid)
        return () if claim is None else tuple(map(_allocation, claim.requests))

    def write(self, claim: PreparedClaim) -> None:
        """Write a record; it survives the process when this returns.

        Raises:
            OSError: the folder cannot be made, or it is full. Memory and disk stay as they were.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._path(claim.identity.uid), encode(claim))
        self._claims[claim.identity.uid] = claim
        self._note_users()

    def remove(self, uid: str) -> None:
        """Remove a record, also an unreadable one; nothing happens if there is none.

        Raises:
            OSError: the kernel refuses. The record stays.
        """
        unlink(self._path(uid))
        unlink(self._path(uid).with_suffix(_UNREADABLE))
        if self._claims.pop(uid, None) is not None:
            self._note_users()
        self._remove_empty_folder()

    def _remove_empty_folder(self) -> None:
        with suppress(OSError):  # it has records or is absent; and an empty folder harms nothing
            self._folder.rmdir()

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}{_RECORD}"

    def _read(self, path: Path) -> None:
        try:
            claim = decode(read_regular(path, _MOST_BYTES))
            if path != self._path(claim.identity.uid):
                raise UnreadableClaim(f"it is a copy of the record of {claim.identity.uid}")
        except (UnreadableClaim, OSError) as error:
            if isinstance(error, OSError) and is_own_shortage(error):
                raise
            aside = path.with_suffix(_UNREADABLE)
            _log.error(
                "the record of a prepared claim, %s, cannot be read: %s; it is kept as %s", path, error, aside.name
            )
            path.replace(aside)
        else:
            self._claims[claim.identity.uid] = claim

    def _note_users(self) -> None:
        self._users = {vf: f"{claim.identity} has it" for claim in self._claims.values() for vf in claim.vfs}


def recorded(folder: Path) -> list[str]:
    """Name the claims of the records in a folder, also of unreadable ones, without a change to the files."""
    paths = sorted(path for path in folder.glob("[!.]*") if path.suffix in (_RECORD, _UNREADABLE))
    return [_name(path) for path in paths]


def _name(path: Path) -> str:
    try:
        return str(decode(read_regular(path, _MOST_BYTES)).identity)
    except (OSError, UnreadableClaim):
        return f"a claim with the UID {path.stem}"


def _allocation(request: PreparedRequest) -> ContainerAllocation:
    allocation = request.allocation
    return ContainerAllocation(frozenset(map(str, request.vfs)), frozenset(allocation.device_nodes), allocation.envs)


def _remove(temporary: Path) -> None:
    try:
        unlink(temporary)
    except OSError as error:
        _log.error("%s is no record of a claim and stays (%s); remove it", temporary, error.strerror)
