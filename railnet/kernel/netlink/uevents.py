"""Receives the kernel's uevents, which name functions of the PCI bus: a PCI device, a netdev of one, or an RDMA device has changed.

The change itself is read from sysfs: a uevent may be lost (ENOBUFS), may come before udev has renamed, and none reports
a port's state, which `railnet.kernel.netlink.link_changes` is for. The kernel sends uevents to the initial network namespace.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from socket import AF_NETLINK, SOCK_RAW, fromfd

from pyudev import Context, Device, Monitor

from railnet.kernel.sockets import socket_filter
from railnet.vf.changed_functions import ChangedFunction
from railnet.vf.pci_address import PciAddress

_SUBSYSTEMS = ("pci", "net", "infiniband")
_AT_ONCE = 64  # uevents that are read before the event loop serves others; it calls again while there are more
# After any other action, such as "add" and "remove", the function itself may be another one (lib/kobject_uevent.c has all actions).
_OF_THE_SAME_FUNCTION = frozenset({"bind", "unbind", "change"})


@contextmanager
def changes(report: Callable[[ChangedFunction | None], None]) -> Iterator[None]:
    """Call `report` in the running loop with the function that a uevent names, or with None if it is not known which ones have changed.

    Raises:
        OSError: the kernel gives no netlink socket.
    """
    # Not udev's own events: those need /run/udev in a container, and come after rules that do not matter here.
    monitor = Monitor.from_netlink(Context(), source="kernel")
    for subsystem in _SUBSYSTEMS:
        monitor.filter_by(subsystem)
    monitor.start()
    with fromfd(monitor.fileno(), AF_NETLINK, SOCK_RAW) as same:  # the filter is the socket's, not the descriptor's
        socket_filter.attach(same, socket_filter.uevents_of_hardware())
    loop = asyncio.get_running_loop()
    loop.add_reader(monitor.fileno(), _read, monitor, report)
    try:
        yield
    finally:
        loop.remove_reader(monitor.fileno())


def named_function(action: str, device_path: str, subsystem: str) -> ChangedFunction | None:
    """Return the function that a uevent concerns, the last one in its path; None if it concerns no PCI function.

    A netdev below a function has the name that a pod gave it; the kernel lets no such name have a colon, as each PCI address has
    (dev_valid_name(), net/core/dev.c).
    """
    if device_path.startswith("/devices/virtual/"):  # a plain pod's veth; the socket's filter may be missing
        return None
    for part in reversed(device_path.split("/")):
        with suppress(ValueError):
            address = PciAddress.parse(part)
            return ChangedFunction(address, subsystem == "pci" and action not in _OF_THE_SAME_FUNCTION)
    return None


def _read(monitor: Monitor, report: Callable[[ChangedFunction | None], None]) -> None:
    try:
        for device in islice(iter(partial(monitor.poll, timeout=0), None), _AT_ONCE):
            _report(device, report)
    except OSError:  # ENOBUFS, when hundreds of pods start at once: what was lost may have been hardware's
        report(None)


def _report(device: Device, report: Callable[[ChangedFunction | None], None]) -> None:
    try:
        changed = named_function(str(device.action), str(device.device_path), str(device.subsystem))
    except ValueError:  # no UTF-8: a netdev that comes back from a pod has the name it was given there
        report(None)
        return
    if changed is not None:
        report(changed)
