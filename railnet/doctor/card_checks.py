"""The checks of cards: PFs, VFs, ports, GUIDs, partitions. Pure."""

from collections.abc import Iterator
from errno import EACCES, EPERM

from railnet.doctor.facts import Facts, Unread
from railnet.doctor.finding_kinds import Finding
from railnet.kernel.sysfs.folder import NOT_PERMITTED
from railnet.vf.guid import Guid
from railnet.vf.inventory import PhysicalFunction, Port, RdmaDevice, VirtualFunction
from railnet.vf.pci_address import PciAddress

_FULL_MEMBER = 0x8000  # bit 15 of a partition key (InfiniBand specification, volume 1, 10.9.1)


def unreadable(facts: Facts) -> Iterator[Finding]:
    """Find functions and files that could not be read."""
    functions: list[PhysicalFunction | VirtualFunction] = [*_pfs(facts), *_vfs(facts)]
    for function in functions:
        if function.fault is not None:
            yield of_unread(Unread(str(function.address), function.fault))
    yield from (of_unread(failure) for failure in facts.unread)


def of_unread(failure: Unread) -> Finding:
    """Return the finding of what could not be read: a missing right says nothing of the device."""
    is_refused = failure.errno in (EACCES, EPERM) or failure.why.endswith(NOT_PERMITTED)
    kind = "not-permitted" if is_refused else "could-not-be-read"
    return Finding(kind, failure.where, failure.why)


def physical_functions(facts: Facts) -> Iterator[Finding]:
    """Find cards without a driver, an RDMA device or VFs."""
    if not any(rail.pf or rail.vfs for _, rail in facts.inventory.all_rails()):
        yield Finding("no-rail", "node", "no PCI function is a network card with SR-IOV, or a VF, that can be a rail")
    for pf in _pfs(facts):
        if pf.fault is None:
            yield from _physical_function(pf)


def _physical_function(pf: PhysicalFunction) -> Iterator[Finding]:
    if pf.driver is None:
        yield Finding("pf-without-driver", str(pf.address), "it has no link `driver`")
        return
    if pf.rdma is None and pf.link_layer == "InfiniBand":
        yield Finding(
            "pf-without-rdma", str(pf.address), f"its driver is {pf.driver}; its folder `infiniband` is absent"
        )
    if pf.numvfs == 0:
        yield Finding("no-vfs", str(pf.address), f"sriov_numvfs is 0, sriov_totalvfs is {pf.totalvfs}")


def ports(facts: Facts) -> Iterator[Finding]:
    """Find ports of PFs without a link, without a subnet manager, or without a LID."""
    for pf in _pfs(facts):
        if pf.fault is None and pf.rdma is not None and pf.rdma.port is not None:
            yield from _port(facts, pf, pf.rdma, pf.rdma.port)


def _port(facts: Facts, pf: PhysicalFunction, device: RdmaDevice, port: Port) -> Iterator[Finding]:
    where, more = (
        f"{pf.address} ({device.name}{'' if port.number == 1 else f', port {port.number}'})",
        facts.ports.get(pf.address),
    )
    infiniband = port.link_layer == "InfiniBand"
    if not _active(port):
        sm_lid = "" if more is None or more.sm_lid is None else f", sm_lid {more.sm_lid:#x}"
        kind = "no-subnet-manager" if infiniband and port.phys_state.endswith("LinkUp") else "port-down"
        ports = (
            f"none of its {len(device.port_numbers)} ports is ACTIVE; port {port.number}: " if device.has_planes else ""
        )
        yield Finding(kind, where, f"{ports}state {port.state!r}, phys_state {port.phys_state!r}{sm_lid}")
    elif infiniband and more is not None and more.lid == 0:
        yield Finding("port-without-lid", where, f"state {port.state!r}, lid 0x0")


def vf_ports(facts: Facts) -> Iterator[Finding]:
    """Find VFs with ports that are not ACTIVE under a PF with a port that is."""
    for pf in _pfs(facts):
        if pf.rdma is None or pf.rdma.port is None or not _active(pf.rdma.port) or pf.link_layer != "InfiniBand":
            continue
        ports_of_vfs = [(vf.address, port) for vf in pf.vfs if (port := _port_of(vf)) is not None]
        for state in dict.fromkeys(port.state for _, port in ports_of_vfs if not _active(port)):
            inactive = [address for address, port in ports_of_vfs if port.state == state]
            seen = f"state {state!r} at {len(inactive)} of {len(ports_of_vfs)} VFs: {_some(inactive)}"
            yield Finding("vf-ports-down", f"{pf.address} ({pf.rdma.name})", seen)


def guids(facts: Facts) -> Iterator[Finding]:
    """Find VFs with a GUID that no port may have, or that another function of this node has."""
    owners: dict[Guid, list[PciAddress]] = {}
    vfs = [vf for vf in _vfs(facts) if vf.fault is None and vf.rdma is not None and vf.link_layer == "InfiniBand"]
    functions: list[PhysicalFunction | VirtualFunction] = [*(pf for pf in _pfs(facts) if pf.fault is None), *vfs]
    for function in functions:
        if function.rdma is not None:
            owners.setdefault(function.rdma.node_guid, []).append(function.address)
    for vf in vfs:
        if vf.rdma is not None and not vf.rdma.node_guid.usable:
            yield Finding("guid-zero", str(vf.address), f"node_guid of {vf.rdma.name} is {vf.rdma.node_guid.quads}")
    of_vfs = {vf.address for vf in vfs}
    for guid, addresses in owners.items():
        # Two PFs of one card are the card maker's business.
        if guid.usable and len(addresses) > 1 and not of_vfs.isdisjoint(addresses):
            yield Finding("guid-twice", str(addresses[0]), f"node_guid {guid.quads} at {_some(addresses)}")


def partitions(facts: Facts) -> Iterator[Finding]:
    """Find ACTIVE ports of VFs in no partition, or only as limited members. A port that is not ACTIVE has no table yet."""
    for vf in _vfs(facts):
        port, more = _port_of(vf), facts.ports.get(vf.address)
        if port is None or not _active(port) or port.link_layer != "InfiniBand" or more is None:
            continue
        if not more.pkeys:
            yield Finding("no-partition", str(vf.address), "every entry of its port's `pkeys` is 0x0000")
        elif not any(pkey & _FULL_MEMBER for pkey in more.pkeys):
            table = ", ".join(f"{pkey:#06x}" for pkey in more.pkeys)
            yield Finding("limited-partition", str(vf.address), f"its port's `pkeys` has {table}")


def _pfs(facts: Facts) -> list[PhysicalFunction]:
    return [rail.pf for _, rail in facts.inventory.all_rails() if rail.pf is not None]


def _vfs(facts: Facts) -> list[VirtualFunction]:
    return [vf for _, rail in facts.inventory.all_rails() for vf in rail.vfs]


def _port_of(vf: VirtualFunction) -> Port | None:
    return None if vf.fault is not None or vf.rdma is None else vf.rdma.port


def _active(port: Port) -> bool:
    return port.state.endswith("ACTIVE")


_MOST_NAMED = 4


def _some(addresses: list[PciAddress]) -> str:
    named = ", ".join(map(str, addresses[:_MOST_NAMED]))
    return named if len(addresses) <= _MOST_NAMED else f"{named} and {len(addresses) - _MOST_NAMED} more"
