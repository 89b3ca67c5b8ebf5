"""Wake up when the kernel says that a PCI device, a netdev of one or an RDMA device has changed.

What has changed is read from sysfs: a uevent may be lost (ENOBUFS), may come before udev has renamed, and none reports
a port's state, which `kernel.netlink.link_changes` is for. The kernel sends uevents to the initial network namespace.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pyudev import Context, Device, Monitor

_SUBSYSTEMS = ("pci", "net", "infiniband")


@contextmanager
def changes(changed: asyncio.Event) -> Iterator[None]:
    """Set an event upon every uevent of hardware, in the running loop; the waiting task clears it.

    Raises:
        OSError: the kernel gives no netlink socket.
    """
    # Not udev's own events: those need /run/udev in a container, and come after rules that do not matter here.
    monitor = Monitor.from_netlink(Context(), source="kernel")
    for subsystem in _SUBSYSTEMS:
        monitor.filter_by(subsystem)
    monitor.start()
    loop = asyncio.get_running_loop()
    loop.add_reader(monitor.fileno(), _read, monitor, changed)
    try:
        yield
    finally:
        loop.remove_reader(monitor.fileno())


def _read(monitor: Monitor, changed: asyncio.Event) -> None:
    try:
        while (device := monitor.poll(timeout=0)) is not None:
            if not _is_virtual(device):
                changed.set()
    except OSError:  # ENOBUFS, when hundreds of pods start at once: what was lost may have been hardware's
        changed.set()


def _is_virtual(device: Device) -> bool:
    try:
        return str(device.device_path).startswith("/devices/virtual/")  # a plain pod's veth
    except ValueError:  # no UTF-8: a netdev that comes back from a pod has the name it was given there
        return False
