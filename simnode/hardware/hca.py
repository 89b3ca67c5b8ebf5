"""The kernel's and the HCA's side of a node: obeys what is written to sysfs and keeps the tree true.

A thread of its own holds every PF and VF. It hears of writes by inotify (and by FIFOs where several writers may be at
it at once), of link changes by rtnetlink, of a netdev's death by its descriptor. What the files look like is in
`sysfs`, what a bound function has is in `bound`.
"""

import contextlib
import os
import queue
import re
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from simnode.hardware import character_devices
from simnode.hardware.bound_function import Surroundings
from simnode.hardware.fabric import Fabric
from simnode.hardware.hardware_model import SimulatedPf
from simnode.hardware.pf import Numbers, PhysicalFunction, VirtualFunction
from simnode.hardware.sysfs_content import DRIVER
from simnode.hardware.sysfs_tree import SysfsTree
from simnode.hardware.tun import Place
from simnode.linux import netns, raise_priority
from simnode.linux.inotify import IN_CLOSE_WRITE, Watch
from vf.address import PciAddress

_NETLINK_ROUTE = 0  # include/uapi/linux/netlink.h
_RTMGRP_LINK = 1  # include/uapi/linux/rtnetlink.h
# struct nlmsghdr: length, type, flags, sequence, port; then struct ifinfomsg: family, type, index, flags, change
_HEADER, _LINK = struct.Struct("=IHHII"), struct.Struct("=BxHiII")
_RTM_NEWLINK, _RTM_DELLINK = 16, 17  # include/uapi/linux/rtnetlink.h
_FIFO_BYTES = 65536
_LOOK_SECONDS = 1.0
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_DRIVER_DIRECTORY = f"/bus/pci/drivers/{DRIVER}"
# Files that are written only; as FIFOs they lose no writer's word, where a plain file keeps the last one's.
_FIFOS = {
    f"{_DRIVER_DIRECTORY}/bind": "bind",
    f"{_DRIVER_DIRECTORY}/unbind": "unbind",
    "/bus/pci/drivers_probe": "bind",
}


class Hca:
    """Simulated PFs in the network namespace of the thread that makes this; `close` takes everything away.

    The tree may be read as soon as this is made.

    Args:
        cables: each PF, with the fabric its port is cabled to; its VFs share the port.
        sysfs: where the tree is to be.
        dev: below which `infiniband` has the device nodes.
    """

    def __init__(self, cables: Mapping[SimulatedPf, Fabric], sysfs: Path, dev: Path) -> None:
        self._tree = SysfsTree(sysfs)
        self._dev = dev / "infiniband"
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._closing = False
        self._one_died = threading.Event()
        with contextlib.ExitStack() as made:
            self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            made.callback(os.close, self._wake_fd)
            self._watch = Watch()
            made.callback(self._watch.close)
            self._links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETLINK_ROUTE)
            made.enter_context(self._links)
            self._links.bind((0, _RTMGRP_LINK))
            made.callback(self._tree.empty)
            self._pfs = self._boot(cables, made)
            self._fifos = self._make_fifos(made)
            self._owned = made.pop_all()
        self._thread = threading.Thread(target=self._run, name="hca", daemon=True)
        self._thread.start()

    def _boot(self, cables: Mapping[SimulatedPf, Fabric], made: contextlib.ExitStack) -> tuple[PhysicalFunction, ...]:
        self._tree.fill("/", character_devices.class_entries())
        self._tree.path("/class/net").mkdir(parents=True)
        self._dev.mkdir(parents=True, exist_ok=True)
        character_devices.make_node(self._dev, character_devices.RDMA_CM)
        made.callback((self._dev / character_devices.RDMA_CM.name).unlink)
        self._tree.path(_DRIVER_DIRECTORY).mkdir(parents=True)
        numbers = Numbers()
        booted = []
        for pf, fabric in cables.items():
            node = Surroundings(self._tree, self._dev, fabric, self.wake, netns.inode())
            function = PhysicalFunction(pf, node, self._watch_files, numbers)
            made.callback(function.remove)
            booted.append(function)
        return tuple(booted)

    def _make_fifos(self, made: contextlib.ExitStack) -> dict[int, str]:
        fifos = {}
        for path, command in _FIFOS.items():
            os.mkfifo(self._tree.path(path), 0o200)
            fd = os.open(self._tree.path(path), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # RDWR: never at end of file
            made.callback(os.close, fd)
            fifos[fd] = command
        return fifos

    def _watch_files(self, directory: str) -> None:
        self._watch.add(self._tree.path(directory), IN_CLOSE_WRITE)

    def wake(self) -> None:
        """Have the thread look at every link again: one has died, and nothing says which."""
        self._one_died.set()
        os.eventfd_write(self._wake_fd, 1)

    def call(self, function: Callable[[], object]) -> None:
        """Run a function in the HCA's thread, after all that was written before, and wait for it."""
        done = threading.Event()
        self._calls.put(function)
        self._calls.put(done.set)
        os.eventfd_write(self._wake_fd, 1)
        while not done.wait(_LOOK_SECONDS):
            if not self._thread.is_alive():
                raise RuntimeError("the HCA's thread has ended; its traceback is on stderr")

    def settle(self) -> None:
        """Wait until all that was written or moved before has had its effect."""
        self.call(self._settle_links)

    def places(self) -> dict[PciAddress, Place]:
        """Tell where each bound VF's netdev is, by its descriptor; one that is dying with its namespace is left out."""
        found: dict[PciAddress, Place] = {}
        self.call(lambda: found.update(self._places()))
        return found

    def set_port(self, address: PciAddress, *, active: bool) -> None:
        """Pull or plug the cable of a PF, or have the subnet manager drop or bring up a VF's port."""
        self.call(lambda: self._function(address).set_port(active=active))

    def close(self) -> None:
        """Remove every VF and PF, and empty the tree."""
        self._closing = True
        self.wake()
        self._thread.join()
        self._owned.close()

    def _run(self) -> None:
        raise_priority.raise_own()  # a kernel does not fall behind those who use it
        poll = select.poll()
        for fd in (self._wake_fd, self._watch.fileno(), self._links.fileno(), *self._fifos):
            poll.register(fd, select.POLLIN)
        while not self._closing:
            poll.poll()
            self._drain_wakes()
            changed = self._changed_links()  # before the calls are taken: a call put later then wakes the next round
            calls = self._take_calls()  # before the files are obeyed: what was written before a call counts for it
            self._obey_files()
            for fd in self._fifos:
                self._obey_fifo(fd)
            self._settle_links(changed)
            for call in calls:
                call()

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _changed_links(self) -> frozenset[int] | None:
        """Return the ifindexes that rtnetlink has named since it was last asked; None if any link may have changed."""
        changed: set[int] = set()
        try:
            while True:
                changed.update(_named_links(self._links.recv(_FIFO_BYTES)))
        except BlockingIOError:
            pass
        except OSError:  # ENOBUFS: messages were lost
            self._one_died.set()
        if self._one_died.is_set():
            self._one_died.clear()
            return None
        return frozenset(changed)

    def _obey_files(self) -> None:
        for event in self._watch.events():
            for pf in self._pfs:
                pf.obey(event.path)

    def _obey_fifo(self, fd: int) -> None:
        try:
            text = os.read(fd, _FIFO_BYTES).decode(errors="replace")
        except BlockingIOError:
            return
        self._obey_files()  # a GUID written before the bind must count
        for other, command in self._fifos.items():  # as must an unbind, for which the kernel's writer waits
            if self._fifos[fd] == "bind" and command == "unbind":
                self._obey_fifo(other)
        for found in _ADDRESS.findall(text):
            vf = self._find_vf(PciAddress.parse(found))
            if vf is not None:
                vf.bind() if self._fifos[fd] == "bind" else vf.unbind()

    def _settle_links(self, changed: frozenset[int] | None = None) -> None:
        for pf in self._pfs if changed is None or changed else ():
            pf.settle(changed)

    def _places(self) -> Iterator[tuple[PciAddress, Place]]:
        for vf in (vf for pf in self._pfs for vf in pf.vfs):
            if vf.bound is not None and (place := vf.bound.place()) is not None:
                yield vf.address, place

    def _take_calls(self) -> list[Callable[[], object]]:
        calls = []
        with contextlib.suppress(queue.Empty):
            while True:
                calls.append(self._calls.get_nowait())
        return calls

    def _find_vf(self, address: PciAddress) -> VirtualFunction | None:
        return next((vf for pf in self._pfs for vf in pf.vfs if vf.address == address), None)

    def _function(self, address: PciAddress) -> PhysicalFunction | VirtualFunction:
        pf = next((pf for pf in self._pfs if pf.facts.address == address), None)
        found = pf or self._find_vf(address)
        if found is None:
            raise LookupError(f"the node has no function {address}")
        return found


def _named_links(messages: bytes) -> Iterator[int]:
    """Return the ifindex of each rtnetlink message about a link."""
    at = 0
    while at < len(messages):
        length, kind, *_ = _HEADER.unpack_from(messages, at)
        if kind in (_RTM_NEWLINK, _RTM_DELLINK):
            yield _LINK.unpack_from(messages, at + _HEADER.size)[2]
        at += length + 3 & ~3  # NLMSG_ALIGN
