"""What is wrong with a node's hardware, disk and neighbours for some seconds of a churn, and which VFs this may concern.

One bad card may cost one card: an operation on the VFs of other cards, and on a pod without a VF, is never excused here.
"""

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from railnet.vf.pci_address import PciAddress
from simnode.chaos.churn_schedule import Disturbance
from simnode.hardware import spoiled_files
from simnode.linux import libc
from simnode.node import Node

_SECONDS = 5.0  # the longest disturbance
# After a disturbance the daemon reads the node again every ten seconds; VFs of a card that comes back must be made and bound.
_AFTER_SECONDS = 30.0
_RUN = Path("/run/railnet")
_RUN_BYTES, _RUN_FILES = 8 << 20, 4096
_HEALTH = ("127.0.0.1", 9474)
_FLOOD_CONNECTIONS = 2500
_FLOOD_BYTES = b"x" * 16384
# Files that a driver or a firmware gets wrong, and files whose read asks the firmware. The simulated HCA rewrites none that hangs.
_PF_VALUES = {"class": "", "sriov_totalvfs": "many\n", "numa_node": "", "infiniband/*/node_guid": "\n"}
_VF_VALUES = {
    "infiniband/*/node_guid": "",
    "net/*/mtu": "",
    "net/*/ifindex": "none\n",
    "infiniband_verbs/*/dev": "231\n",
}
_PF_HANGS = ("numa_node", "class", "sriov_totalvfs")
_VF_HANGS = ("infiniband/*/ports/1/state", "infiniband_verbs/*/dev")


@contextlib.contextmanager
def small_run_folder() -> Iterator[None]:
    """Mount a small tmpfs at /run/railnet inside the block, so that it can be full while the rest of /run is not."""
    _RUN.mkdir(parents=True, exist_ok=True)
    libc.mount("run-railnet", str(_RUN), fstype="tmpfs", data=f"mode=700,size={_RUN_BYTES},nr_inodes={_RUN_FILES}")
    try:
        yield
    finally:
        libc.unmount(str(_RUN))


class Disturbances:
    """Disturbances of one node, which many threads may begin at once; each card and each kind has one at a time.

    Args:
        node: the node.
        kept: VFs whose cards stay: pods run with them from the beginning to the end.
    """

    def __init__(self, node: Node, kept: Callable[[], Collection[PciAddress]]) -> None:
        self._node, self._kept = node, kept
        self._pfs = [pf.address for pf in node.pfs]
        self._lock = threading.Lock()
        self._now: set[object] = set()
        self._ended: dict[object, float] = {}
        self._act: dict[Disturbance, Callable[[PciAddress, float], AbstractContextManager[None]]] = {
            "card gone": self._card_gone,
            "PF's value bad": self._value_bad,
            "VF's value bad": self._value_of_vf_bad,
            "PF's file hung": self._file_hung,
            "VF's file hung": self._file_of_vf_hung,
            "/run/railnet full": self._run_full,
            "health port flooded": self._flooded,
        }

    def disturb(self, kind: Disturbance, moment: float, pick: float) -> bool:
        """Disturb the node for a part `moment` of five seconds; return False if the card or the kind is disturbed already."""
        pf = self._picked(kind, pick)
        place = pf if kind not in ("/run/railnet full", "health port flooded") else kind
        with self._lock:
            if place in self._now:
                return False
            self._now.add(place)
        try:
            with self._act[kind](pf, pick):
                time.sleep(_SECONDS * moment)
        finally:
            with self._lock:
                self._ended[place] = time.monotonic()
                self._now.remove(place)
        return True

    def concern(self, vfs: Collection[str], since: float) -> bool:
        """Return whether a card of one of these VFs was disturbed after the moment `since` of the monotonic clock."""
        cards = {self._card(PciAddress.parse(vf)) for vf in vfs}
        return any(self._was(card, since, _AFTER_SECONDS) for card in cards)

    def any_card(self, since: float) -> bool:
        """Return whether any card was disturbed after a moment of the monotonic clock."""
        return any(self._was(pf, since, _AFTER_SECONDS) for pf in self._pfs)

    def lost(self) -> int:
        """Return the number of VFs that may be unhealthy at this moment."""
        return sum(self._node.vfs for pf in self._pfs if self._was(pf, time.monotonic(), _AFTER_SECONDS))

    def was_full(self, since: float) -> bool:
        """Return whether /run/railnet was full after a moment of the monotonic clock."""
        return self._was("/run/railnet full", since, 0)

    def _was(self, place: object, since: float, after: float) -> bool:
        with self._lock:
            return place in self._now or self._ended.get(place, -after) + after > since

    def _card(self, vf: PciAddress) -> PciAddress:
        """Return the PF of a VF; in this simulation VFs have their PF's bus or a later one, and PFs are 16 buses apart."""
        return max(pf for pf in self._pfs if pf <= vf)

    def _picked(self, kind: Disturbance, pick: float) -> PciAddress:
        kept = {self._card(vf) for vf in self._kept()} if kind == "card gone" else set()
        free = [pf for pf in self._pfs if pf not in kept]
        return free[int(pick * len(free))]

    @contextlib.contextmanager
    def _card_gone(self, pf: PciAddress, pick: float) -> Iterator[None]:  # noqa: ARG002 - the table calls all alike
        rail = self._pfs.index(pf)
        self._node.hca.pull_out(pf)
        try:
            yield
        finally:
            self._node.hca.plug_in(self._node.pfs[rail], self._node.fabrics[rail])

    def _value_bad(self, pf: PciAddress, pick: float) -> AbstractContextManager[None]:
        name = _picked_from(tuple(_PF_VALUES), pick)
        return self._bad(pf, name, _PF_VALUES[name])

    def _value_of_vf_bad(self, pf: PciAddress, pick: float) -> AbstractContextManager[None]:
        name = _picked_from(tuple(_VF_VALUES), pick)
        return self._bad(self._vf(pf, pick), name, _VF_VALUES[name])

    def _bad(self, function: PciAddress, name: str, text: str) -> AbstractContextManager[None]:
        found = self._file(function, name)
        return contextlib.nullcontext() if found is None else spoiled_files.bad_value(self._node.hca, found, text)

    def _file_hung(self, pf: PciAddress, pick: float) -> AbstractContextManager[None]:
        return self._hung(pf, _picked_from(_PF_HANGS, pick))

    def _file_of_vf_hung(self, pf: PciAddress, pick: float) -> AbstractContextManager[None]:
        return self._hung(self._vf(pf, pick), _picked_from(_VF_HANGS, pick))

    def _hung(self, function: PciAddress, name: str) -> AbstractContextManager[None]:
        found = self._file(function, name)
        return contextlib.nullcontext() if found is None else spoiled_files.hanging(self._node.hca, found)

    def _vf(self, pf: PciAddress, pick: float) -> PciAddress:
        properties = next(one for one in self._node.pfs if one.address == pf)
        return properties.vf_address(int(pick * 1000) % self._node.vfs)

    def _file(self, function: PciAddress, name: str) -> Path | None:
        """Return a file of a function; None if there is none, as of a netdev that is in a pod."""
        with contextlib.suppress(LookupError, OSError):
            return next(iter(sorted(self._node.hca.function_path(function).glob(name))), None)
        return None

    @contextlib.contextmanager
    def _run_full(self, pf: PciAddress, pick: float) -> Iterator[None]:  # noqa: ARG002
        """Fill /run/railnet, in one half of the cases with bytes, in the other with files."""
        made: list[Path] = []
        try:
            with contextlib.suppress(OSError):
                if int(pick * 1000) % 2:
                    self._fill_with_bytes(made)
                else:
                    self._fill_with_files(made)
            yield
        finally:
            for path in made:
                path.unlink()

    def _fill_with_bytes(self, made: list[Path]) -> None:
        made.append(_RUN / "ballast")
        with made[0].open("wb", buffering=0) as file:
            while file.write(b"\0" * 4096):
                pass

    def _fill_with_files(self, made: list[Path]) -> None:
        for number in range(_RUN_FILES):
            path = _RUN / f"ballast-{number}"
            path.touch()
            made.append(path)

    @contextlib.contextmanager
    def _flooded(self, pf: PciAddress, pick: float) -> Iterator[None]:  # noqa: ARG002
        """Open connections to the health port and keep them: half are silent, half send a header that has no end."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        opened: list[socket.socket] = []
        try:
            opened += [_connection(silent=bool(number % 2)) for number in range(_FLOOD_CONNECTIONS)]
            yield
        finally:
            for one in opened:
                one.close()


def _connection(*, silent: bool) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(_HEALTH)
    if not silent:
        with contextlib.suppress(OSError):
            one.send(_FLOOD_BYTES)
    return one


def _picked_from(names: Sequence[str], pick: float) -> str:
    return names[int(pick * 997) % len(names)]
