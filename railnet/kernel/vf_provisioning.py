"""Make VFs, give them their GUIDs and MACs, and bind their drivers. `railnet.vf.provision` decides which steps that takes; these do them."""

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from errno import ENODEV

from railnet.errors import NotReady
from railnet.kernel.netlink.rtnetlink import links
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.waiting import block_until
from railnet.vf.pci_address import PciAddress
from railnet.vf.steps import (
    AllowDrivers,
    BindDriver,
    BringUp,
    CreateVfs,
    PfStep,
    ProbeAgain,
    ProvisionStep,
    SetGuid,
    SetGuidByLink,
    SetMac,
)

_APPEAR_SECONDS = 10.0
_BINDING_AT_ONCE = 8  # mlx5 probes a VF in half a second, and probes of one PF's VFs do not wait for each other
_LOOK_SECONDS = 0.02  # PCI reports a new VF by a uevent only after sysfs shows it


def provision(steps: Iterable[ProvisionStep], sysfs: Sysfs) -> dict[PciAddress, OSError]:
    """Do the steps, drivers last and several at once. Nothing is undone: the next start continues where this one ended.

    Return the VFs whose driver was not bound, with what the kernel refused: they cost no other VF.

    Raises:
        OSError: what the kernel refused.
        NotReady: VFs did not appear in time.
    """
    binds = []
    for step in steps:
        if isinstance(step, BindDriver):
            binds.append(step)
        else:
            _provision(step, sysfs)
    return _bind_all(binds, sysfs)


def _bind_all(steps: Iterable[BindDriver], sysfs: Sysfs) -> dict[PciAddress, OSError]:
    """Bind drivers in daemon threads: a probe may hang, and the interpreter's end waits for an executor's threads."""
    left, refused = deque(steps), dict[PciAddress, OSError]()

    def bind() -> None:
        while left:
            with suppress(IndexError):  # another thread took the last one
                step = left.popleft()
                try:
                    sysfs.bind(step.vf, step.driver)
                except OSError as error:
                    refused[step.vf] = error

    threads = [threading.Thread(target=bind, name="bind", daemon=True) for _ in range(min(_BINDING_AT_ONCE, len(left)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused


def probe_again(step: ProbeAgain, sysfs: Sysfs) -> None:
    """Unbind a VF from its driver and bind it again. Blocks while the driver probes it, half a second for mlx5.

    Raises:
        OSError: what the kernel refused.
    """
    try:
        sysfs.unbind(step.vf, step.driver)
    except OSError as error:
        if error.errno != ENODEV:  # it has no driver any more
            raise
    sysfs.bind(step.vf, step.driver)


def _provision(step: PfStep, sysfs: Sysfs) -> None:
    match step:
        case CreateVfs():
            _create_vfs(step, sysfs)
        case SetGuid():
            sysfs.set_guid(step.pf, step.index, step.guid)
        case SetGuidByLink() | SetMac():
            _name_by_link(step)
        case BringUp():
            with links() as node:
                node.set_up(step.pf_ifindex)
        case AllowDrivers():
            sysfs.set_drivers_autoprobe(step.pf, True)


def _name_by_link(step: SetGuidByLink | SetMac) -> None:
    from railnet.kernel.netlink import vf_configuration  # noqa: PLC0415 - it imports pyroute2, for which no ADD may wait

    match step:
        case SetGuidByLink():
            vf_configuration.set_guids(step.pf_ifindex, step.index, step.guid)
        case SetMac():
            vf_configuration.set_mac(step.pf_ifindex, step.index, step.mac)


def _create_vfs(step: CreateVfs, sysfs: Sysfs) -> None:
    sysfs.set_drivers_autoprobe(step.pf, False)
    if step.replaced:
        sysfs.set_numvfs(step.pf, 0)  # the kernel refuses a change from one number to another
        _await_vfs(sysfs, step, 0)
    sysfs.set_numvfs(step.pf, step.count)
    _await_vfs(sysfs, step, step.count)


def _await_vfs(sysfs: Sysfs, step: CreateVfs, count: int) -> None:
    counts: list[str] = []

    def all_shown() -> bool:
        shown = sysfs.count_of_vfs(step.pf)
        counts[:] = ["no PF" if shown is None else f"{shown} VFs"]
        return shown == count

    if not block_until(all_shown, _APPEAR_SECONDS, _LOOK_SECONDS):
        raise NotReady(f"PF {step.pf} shows {counts[0]} {_APPEAR_SECONDS:g} s after {count} were asked for")
