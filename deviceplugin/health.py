"""Whether a VF can serve a pod, and if not, why and what to do about it.

Pure: facts to a reason in words. Not here: what follows from a reason (`deviceplugin.offers`), and waiting for
facts to become better. What is judged: PCI, the driver, the PF's port. What is not: the VF's own port, which stays down
while no subnet manager serves it and is normal for an idle VF.
"""

from vf.function import PhysicalFunction, VirtualFunction


def reason(pf: PhysicalFunction, vf: VirtualFunction, *, owned: bool, rdma: bool) -> str | None:
    """Tell why a VF is not fit for a pod, with the remedy; None if it is.

    Args:
        pf: the VF's PF.
        vf: the facts of the VF. In shared RDMA netns mode its RDMA device stays visible while a pod has the netdev; in
            exclusive mode both are gone.
        owned: whether a sandbox has it: what is then out of sight is with the pod, and no reason.
        rdma: whether the VF needs an RDMA device at all.
    """
    return (
        _driver(pf, vf)
        or (_pf_port(pf) if rdma else None)
        or (_rdma_device(vf, owned=owned) if rdma else None)
        or _netdev(pf, vf, owned=owned)
    )


def _driver(pf: PhysicalFunction, vf: VirtualFunction) -> str | None:
    if vf.driver is not None:
        return None
    return f"no driver is bound to VF {vf.address}: bind one, e.g. echo {vf.address} > /sys/bus/pci/drivers_probe" + (
        "" if pf.driver else f"; PF {pf.address} has none either"
    )


def _pf_port(pf: PhysicalFunction) -> str | None:
    if pf.rdma is None:
        return f"PF {pf.address} has no RDMA device: load its driver's RDMA module, e.g. modprobe mlx5_ib"
    if pf.rdma.port is None or pf.rdma.port.state.endswith("ACTIVE"):
        return None
    return (
        f"port 1 of PF {pf.address} ({pf.rdma.name}) is {pf.rdma.port.state!r}, {pf.rdma.port.phys_state!r}: "
        "check its cable and switch port, and that a subnet manager runs"
    )


def _rdma_device(vf: VirtualFunction, *, owned: bool) -> str | None:
    device = vf.rdma
    if device is None:
        missing = f"VF {vf.address} has no RDMA device under driver {vf.driver}: load its RDMA module, or rebind the VF"
        return None if owned else missing
    if not device.node_guid.usable:
        return (
            f"VF {vf.address} ({device.name}) has the node GUID {device.node_guid.quads}, which was never set: let "
            f"Railnet provision its PF, or ip link set <PF> vf {vf.index} node_guid and port_guid, then rebind the VF"
        )
    if device.uverbs is None:
        return f"VF {vf.address} ({device.name}) has no uverbs device: modprobe ib_uverbs"
    return None


def _netdev(pf: PhysicalFunction, vf: VirtualFunction, *, owned: bool) -> str | None:
    if owned or vf.netdev is not None:
        return None
    remedy = "modprobe ib_ipoib" if pf.link_layer == "InfiniBand" else "rebind the VF"
    return f"VF {vf.address} has no network interface on the host: {remedy}"
