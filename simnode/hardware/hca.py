"""The simulated HCA and its driver: executes the writes to sysfs, and updates sysfs when links change.

One thread has all PFs and VFs. inotify reports writes to files to it, FIFOs report them where several writers may write
at the same time; rtnetlink reports changed links, and a netdev's descriptor reports its death. `sysfs_content` has the
content of the files, `pf` the behaviour of the functions.
"""

import contextlib
import os
import queue
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from railnet.vf.pci_address import PciAddress
from simnode.hardware import character_devices
from simnode.hardware.bound_pci_function import FunctionContext
from simnode.hardware.fabric import Fabric
from simnode.hardware.infiniband_tun import NetdevPlace
from simnode.hardware.pf import PhysicalFunction, RdmaNumbers, VirtualFunction
from simnode.hardware.pf_properties import SimulatedPf
from simnode.hardware.sysfs_content import DRIVER
from simnode.hardware.sysfs_tree import SysfsTree
from simnode.linux import netns, raise_priority
from simnode.linux.inotify import IN_CLOSE_WRITE, DirectoryWatch

_NETLINK_ROUTE = 0  # include/uapi/linux/netlink.h
_RTMGRP_LINK = 1  # include/uapi/linux/rtnetlink.h
# struct nlmsghdr: length, type, flags, sequence, port; then struct ifinfomsg: family, type, index, flags, change
_HEADER, _LINK = struct.Struct("=IHHII"), struct.Struct("=BxHiII")
_RTM_NEWLINK, _RTM_DELLINK = 16, 17  # include/uapi/linux/rtnetlink.h
_FIFO_BYTES = 65536
_LOOK_SECONDS = 1.0
# A kernel's sysfs is never old. In one run of the churn the simulated one showed for minutes what a netdev had been; the cause is not known.
_CHECK_SECONDS = 2.0
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_DRIVER_DIRECTORY = f"/bus/pci/drivers/{DRIVER}"
# Files that are only written. A FIFO keeps what each writer wrote; a regular file would keep only the last write.
_FIFOS = {
    f"{_DRIVER_DIRECTORY}/bind": "bind",
    f"{_DRIVER_DIRECTORY}/unbind": "unbind",
    "/bus/pci/drivers_probe": "bind",
}


class Hca:
    """Simulated PFs in the network namespace of the thread that makes this object; `close` removes everything.

    The sysfs tree is complete when the constructor returns.

    Args:
        cables: each PF with the fabric to which its port is cabled; the PF's VFs share the port.
        sysfs: the root of the sysfs tree.
        dev: the folder whose subfolder `infiniband` has the device nodes.
    """

    def __init__(self, cables: Mapping[SimulatedPf, Fabric], sysfs: Path, dev: Path) -> None:
        self._tree = SysfsTree(sysfs)
        self._dev = dev / "infiniband"
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._closing = False
        self._netdev_died = threading.Event()
        self._numbers = RdmaNumbers()
        self._pfs: tuple[PhysicalFunction, ...] = ()
        with contextlib.ExitStack() as made:
            self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            made.callback(os.close, self._wake_fd)
            self._watch = DirectoryWatch()
            made.callback(self._watch.close)
            self._links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETLINK_ROUTE)
            made.enter_context(self._links)
            self._links.bind((0, _RTMGRP_LINK))
            made.callback(self._tree.empty)
            self._boot(cables, made)
            self._fifos = self._make_fifos(made)
            self._owned = made.pop_all()
        self._thread = threading.Thread(target=self._run, name="hca", daemon=True)
        self._thread.start()

    def _boot(self, cables: Mapping[SimulatedPf, Fabric], made: contextlib.ExitStack) -> None:
        self._tree.fill("/", character_devices.class_entries())
        self._tree.path("/class/net").mkdir(parents=True)
        self._dev.mkdir(parents=True, exist_ok=True)
        character_devices.make_node(self._dev, character_devices.RDMA_CM)
        made.callback((self._dev / character_devices.RDMA_CM.name).unlink)
        self._tree.path(_DRIVER_DIRECTORY).mkdir(parents=True)
        made.callback(self._remove_all)
        for pf, fabric in cables.items():
            self._plug_in(pf, fabric)

    def _plug_in(self, pf: SimulatedPf, fabric: Fabric) -> None:
        node = FunctionContext(self._tree, self._dev, fabric, self.wake, netns.inode())
        self._pfs = (*self._pfs, PhysicalFunction(pf, node, self._watch_files, self._numbers))

    def _pull_out(self, address: PciAddress) -> None:
        gone = next(pf for pf in self._pfs if pf.address == address)
        self._pfs = tuple(pf for pf in self._pfs if pf is not gone)
        gone.remove()

    def _remove_all(self) -> None:
        for pf in self._pfs:
            pf.remove()

    def _make_fifos(self, made: contextlib.ExitStack) -> dict[int, str]:
        fifos = {}
        for path, command in _FIFOS.items():
            os.mkfifo(self._tree.path(path), 0o200)
            # O_RDWR, because a FIFO that is open for reading only is at its end when a writer closes it.
            fd = os.open(self._tree.path(path), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            made.callback(os.close, fd)
            fifos[fd] = command
        return fifos

    def _watch_files(self, directory: str) -> None:
        self._watch.add(self._tree.path(directory), IN_CLOSE_WRITE)

    def wake(self) -> None:
        """Make the thread read each link again: a netdev has died, and no event names it."""
        self._netdev_died.set()
        os.eventfd_write(self._wake_fd, 1)

    def call(self, function: Callable[[], object]) -> None:
        """Run a function in the HCA's thread after all earlier writes are executed, and wait for its end."""
        done = threading.Event()
        self._calls.put(function)
        self._calls.put(done.set)
        os.eventfd_write(self._wake_fd, 1)
        while not done.wait(_LOOK_SECONDS):
            if not self._thread.is_alive():
                raise RuntimeError(
                    "the simulated HCA does not answer, its thread has ended: read its traceback on stderr"
                )

    def settle(self) -> None:
        """Wait until all earlier writes and link changes have had their effect."""
        self.call(self._settle_links)

    def places(self) -> dict[PciAddress, NetdevPlace]:
        """Return the place of each bound VF's netdev, by the netdev's descriptor; a dying netdev is left out."""
        found: dict[PciAddress, NetdevPlace] = {}
        self.call(lambda: found.update(self._places()))
        return found

    def set_port(self, address: PciAddress, *, active: bool) -> None:
        """Set a port down or up: a PF's as by its cable, a VF's as by the subnet manager."""
        self.call(lambda: self._function(address).set_port(active=active))

    def pull_out(self, address: PciAddress) -> None:
        """Remove a PF with its VFs from PCI, as if its card had died."""
        self.call(lambda: self._pull_out(address))

    def plug_in(self, pf: SimulatedPf, fabric: Fabric) -> None:
        """Add a PF to PCI, with its port cabled to a fabric."""
        self.call(lambda: self._plug_in(pf, fabric))

    def function_path(self, function: PciAddress) -> Path:
        """Return the folder of a PF or VF, whose files a test may spoil inside `call`.

        Raises:
            LookupError: there is no such function now.
        """
        return self._tree.path(self._function(function).directory)

    def close(self) -> None:
        """Remove all VFs and PFs, and empty the sysfs tree."""
        self._closing = True
        self.wake()
        self._thread.join()
        self._owned.close()

    def _run(self) -> None:
        raise_priority.raise_own()  # a kernel does not lag behind the processes that use it
        poll = select.poll()
        for fd in (self._wake_fd, self._watch.fileno(), self._links.fileno(), *self._fifos):
            poll.register(fd, select.POLLIN)
        checked = time.monotonic()
        while not self._closing:
            poll.poll(1000 * _CHECK_SECONDS)
            self._drain_wakes()
            changed = self._changed_links()  # before the calls are taken: a call that is put later wakes the next round
            calls = self._take_calls()  # before the files are read: a call sees the effect of all earlier writes
            self._store_files()
            for fd in self._fifos:
                self._store_fifo(fd)
            self._settle_links(changed)
            for call in calls:
                call()
            if time.monotonic() - checked > _CHECK_SECONDS:
                self._check_links()
                checked = time.monotonic()

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _changed_links(self) -> frozenset[int] | None:
        """Return the ifindexes that rtnetlink has reported since the last call; None if any link may have changed."""
        changed: set[int] = set()
        try:
            while True:
                changed.update(_named_links(self._links.recv(_FIFO_BYTES)))
        except BlockingIOError:
            pass
        except OSError:  # ENOBUFS: the kernel dropped messages
            self._netdev_died.set()
        if self._netdev_died.is_set():
            self._netdev_died.clear()
            return None
        return frozenset(changed)

    def _store_files(self) -> None:
        for event in self._watch.events():
            for pf in self._pfs:
                pf.store_file(event.path)

    def _store_fifo(self, fd: int) -> None:
        try:
            text = os.read(fd, _FIFO_BYTES).decode(errors="replace")
        except BlockingIOError:
            return
        self._store_files()  # the bind must read a GUID that was written before it
        for (
            other,
            command,
        ) in self._fifos.items():  # an unbind comes first: on a real kernel, write(2) waits for its end
            if self._fifos[fd] == "bind" and command == "unbind":
                self._store_fifo(other)
        for found in _ADDRESS.findall(text):
            vf = self._find_vf(PciAddress.parse(found))
            if vf is not None:
                vf.bind() if self._fifos[fd] == "bind" else vf.unbind()

    def _settle_links(self, changed: frozenset[int] | None = None) -> None:
        for pf in self._pfs if changed is None or changed else ():
            pf.settle(changed)

    def _check_links(self) -> None:
        """Have sysfs show each netdev as it is, also if no event came of it."""
        for function in (each for pf in self._pfs for each in (pf, *pf.vfs)):
            if function.bound is not None:
                function.bound.check()

    def _places(self) -> Iterator[tuple[PciAddress, NetdevPlace]]:
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
        pf = next((pf for pf in self._pfs if pf.properties.address == address), None)
        found = pf or self._find_vf(address)
        if found is None:
            raise LookupError(
                f"the simulated node has no PF or VF {address}: give the address of one of its PFs or VFs"
            )
        return found


def _named_links(messages: bytes) -> Iterator[int]:
    """Yield the ifindex of each rtnetlink message about a link."""
    at = 0
    while at < len(messages):
        length, kind, *_ = _HEADER.unpack_from(messages, at)
        if kind in (_RTM_NEWLINK, _RTM_DELLINK):
            yield _LINK.unpack_from(messages, at + _HEADER.size)[2]
        at += length + 3 & ~3  # NLMSG_ALIGN
