"""Whether a VF can serve a pod, and if not, why and what to do about it.

Pure: facts to a reason in words. Not here: what follows from a reason (`deviceplugin.devices`), and waiting for
facts to become better. What is judged: PCI, the driver, the PF's port. What is not: the VF's own port, which stays down
while no subnet manager serves it and is normal for an idle VF; of a VF that has no PF on this node it is all there is.

The PF's port is its RDMA port where the pool needs RDMA, and its carrier where the pool does not. A PF whose netdev is
administratively down shows no carrier and is not judged by it: some firmware keeps the port up for the VFs (KEEP_ETH_LINK_UP
of mlx5). With RoCE, the RDMA port knows better than the carrier: one device may have the ports of a bond.
"""

from vf.inventory import LinkLayer, PhysicalFunction, Port, RdmaDevice, VirtualFunction


def reason(pf: PhysicalFunction | None, vf: VirtualFunction, *, owned: bool, rdma: bool) -> str | None:
    """Return why a VF is not fit for a pod, with the remedy; None if it is.

    Args:
        pf: the VF's PF; None where it is not on this node.
        vf: the facts of the VF. In shared RDMA netns mode its RDMA device stays visible while a pod has the netdev; in
            exclusive mode both are gone.
        owned: whether a sandbox has it: what is then out of sight is with the pod, and no reason.
        rdma: whether the VF needs an RDMA device at all.
    """
    return (
        _driver(pf, vf)
        or (None if pf is None else _pf_port(pf) if rdma else _pf_carrier(pf))
        or (_rdma_device(vf, owned=owned) if rdma else None)
        or (_port(f"VF {vf.address}", vf.rdma) if rdma and pf is None and vf.rdma is not None else None)
        or _netdev((pf or vf).link_layer, vf, owned=owned)
    )


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
    if port is None or port.state.endswith("ACTIVE"):
        return None
    return f"port 1 of {function} ({device.name}) is {port.state!r}, {port.phys_state!r}: {_port_remedy(port)}"


def _port_remedy(port: Port) -> str:
    if port.link_layer == "InfiniBand" and port.phys_state.endswith("LinkUp"):
        return "the link is up, but no subnet manager has made the port active: check that one runs and serves it"
    return "check its cable and switch port"


def _rdma_device(vf: VirtualFunction, *, owned: bool) -> str | None:
    device = vf.rdma
    if device is None:
        missing = f"VF {vf.address} has no RDMA device under driver {vf.driver}: load its RDMA module, or rebind the VF"
        return None if owned else missing
    if not device.node_guid.usable:
        return f"VF {vf.address} ({device.name}) has the node GUID {device.node_guid.quads}, which was never set: " + (
            "set one on the machine that passes the VF to this machine"
            if vf.pf is None
            else "let Railnet provision its PF, or "
            f"ip link set <PF> vf {vf.index} node_guid and port_guid, then rebind the VF"
        )
    if device.uverbs is None:
        return f"VF {vf.address} ({device.name}) has no uverbs device: modprobe ib_uverbs"
    return None


def _netdev(link_layer: LinkLayer, vf: VirtualFunction, *, owned: bool) -> str | None:
    if owned or vf.netdev is not None:
        return None
    remedy = "modprobe ib_ipoib" if link_layer == "InfiniBand" else "rebind the VF"
    return f"VF {vf.address} has no network interface on the host: {remedy}"
