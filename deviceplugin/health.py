"""The health of a VF: whether it can serve a pod, and if not, the reason and the remedy.

A fact of the VF or of its PF that cannot be read or understood (`fault`) comes first: the other facts are then incomplete.

Pure: facts in, a reason in words out. Not here: the consequences of a reason (`deviceplugin.devices`), and waiting for better facts. The
judgement uses the driver, the RDMA device, the netdev and the PF's port. It ignores the VF's own port: that stays down while no subnet
manager serves it, which is normal for an idle VF. Only if the VF's PF is not on this node, the VF's own port counts.

The PF's port is its RDMA port if the pool needs RDMA, else its carrier. A PF with a netdev that is administratively down shows no
carrier and is not judged by it: some firmware keeps the port up for the VFs (KEEP_ETH_LINK_UP of mlx5). With RoCE, the RDMA port
knows better than the carrier: one device may have the ports of a bond.
"""

from railnet.vf.inventory import LinkLayer, PhysicalFunction, Port, Rail, RdmaDevice, VirtualFunction


def reason(pf: PhysicalFunction | None, vf: VirtualFunction, *, owned: bool, rdma: bool) -> str | None:
    """Return why a VF cannot serve a pod, with the remedy; None if it can.

    Args:
        pf: the VF's PF; None if the PF is not on this node.
        vf: the facts of the VF. While a pod has the netdev, the RDMA device stays visible on the node in shared RDMA netns mode; in
            exclusive mode neither is visible.
        owned: whether a sandbox has the VF. Then a device that is not visible is in the pod, which is no fault.
        rdma: whether the VF needs an RDMA device.
    """
    return (
        (None if pf is None else _fault(f"PF {pf.address} of VF {vf.address}", pf.fault))
        or _fault(f"VF {vf.address}", vf.fault)
        or _driver(pf, vf)
        or (None if pf is None else _pf_port(pf) if rdma else _pf_carrier(pf))
        or (_rdma_device(vf, owned=owned) if rdma else None)
        or (_port(f"VF {vf.address}", vf.rdma) if rdma and pf is None and vf.rdma is not None else None)
        or _netdev((pf or vf).link_layer, vf, owned=owned)
    )


def lasting_reason(pf: PhysicalFunction | None, vf: VirtualFunction, *, rdma: bool) -> str | None:
    """Return that reason for which a VF cannot serve a pod until an operator acts; None if there is none, or if it may pass by itself.

    A netdev or an RDMA device that is away may be on its way back from a pod, and a port may come up: the pod's ADD waits for both.
    The arguments are as for `reason`.
    """
    return _driver(pf, vf) or (_node_guid(vf, vf.rdma) if rdma and vf.rdma is not None else None)


def port_reason(rail: Rail, *, rdma: bool) -> str | None:
    """Return why the port of a whole rail is not ACTIVE, with the remedy; None if it is, or if its card does not show it.

    The port is the PF's, or that of a VF whose PF is not on this node. `rdma` is whether a pod needs an RDMA device on this rail.
    """
    if rail.reason is not None:
        return rail.reason
    if rail.pf is not None:
        pf = rail.pf
        return _fault(f"PF {pf.address}", pf.fault) or (_pf_port(pf) if rdma else _pf_carrier(pf))
    for vf in rail.vfs:
        port = _port(f"VF {vf.address}", vf.rdma) if rdma and vf.rdma is not None else None
        return _fault(f"VF {vf.address}", vf.fault) or port
    return f"the card {rail.address} is missing: look in dmesg, and replace the card or put it back"


def _fault(function: str, fault: str | None) -> str | None:
    return None if fault is None else f"{function} cannot be used: {fault}"


def _driver(pf: PhysicalFunction | None, vf: VirtualFunction) -> str | None:
    if vf.driver is not None:
        return None
    return f"no driver is bound to VF {vf.address}: bind one, e.g. echo {vf.address} > /sys/bus/pci/drivers_probe" + (
        "" if pf is None or pf.driver else f"; PF {pf.address} has none either"
    )


def _pf_port(pf: PhysicalFunction) -> str | None:
    if pf.rdma is None:
        return f"PF {pf.address} has no RDMA device: load its driver's RDMA module, e.g. modprobe mlx5_ib"
    return _port(f"PF {pf.address}", pf.rdma)


def _pf_carrier(pf: PhysicalFunction) -> str | None:
    if pf.carrier is not False or pf.link_layer != "Ethernet" or pf.netdev is None:
        return None
    return f"PF {pf.address} ({pf.netdev.name}) has no carrier: check its cable and switch port"


def _port(function: str, device: RdmaDevice) -> str | None:
    port = device.port
    if port is None or port.is_active:
        return None
    if device.has_planes:
        ports = f"none of the {len(device.port_numbers)} ports of {function} ({device.name}) is ACTIVE"
        return f"{ports}, and port {port.number} is {port.state!r}, {port.phys_state!r}: {_port_remedy(port, 'the cables and switch ports of its data ports')}"
    return (
        f"port {port.number} of {function} ({device.name}) is {port.state!r}, {port.phys_state!r}: {_port_remedy(port)}"
    )


def _port_remedy(port: Port, parts: str = "its cable and switch port") -> str:
    if port.link_layer == "InfiniBand" and port.phys_state.endswith("LinkUp"):
        return "the link is up, but no subnet manager has made the port active: check that one runs and serves it"
    return f"check {parts}"


def _rdma_device(vf: VirtualFunction, *, owned: bool) -> str | None:
    device = vf.rdma
    if device is None:
        missing = f"VF {vf.address} has no RDMA device under driver {vf.driver}: load its RDMA module, or rebind the VF"
        return None if owned else missing
    if (reason := _node_guid(vf, device)) is not None:
        return reason
    if device.uverbs is None:
        return f"VF {vf.address} ({device.name}) has no uverbs device: modprobe ib_uverbs"
    return None


def _node_guid(vf: VirtualFunction, device: RdmaDevice) -> str | None:
    if device.node_guid.usable:
        return None
    return f"VF {vf.address} ({device.name}) has the node GUID {device.node_guid.quads}, which was never set: " + (
        "set one on the machine that passes the VF to this machine"
        if vf.pf is None
        else f"let Railnet provision its PF, or ip link set <PF> vf {vf.index} node_guid and port_guid, then rebind the VF"
    )


def _netdev(link_layer: LinkLayer, vf: VirtualFunction, *, owned: bool) -> str | None:
    if owned or vf.netdev is not None:
        return None
    remedy = "modprobe ib_ipoib" if link_layer == "InfiniBand" else "rebind the VF"
    return f"VF {vf.address} has no network interface on the host: {remedy}"
