"""Says what to look at next when a rail has a finding. Pure.

Source of the values of IPoIB: Linux, Documentation/infiniband/ipoib.rst; of the partition's MTU: linux-rdma/opensm, doc/partition-config.txt.
"""

_CUT = {
    0: "the rail's switch, and the subnet manager: no pair has a connection",
    1: "the port of this node (`railnet doctor` in its Railnet pod), then its cable and the switch's port",
    2: "the ports of both nodes (`railnet doctor` in their Railnet pods); if both reach other nodes, the way between their switches",
}
_SLOW = {
    0: "what all pairs share: the rail's switch, its rate and its congestion, and the slots and settings of its cards",
    1: "the node's port and cable: width, rate and errors (`ibstat`, `perfquery`), the card's PCIe link (`lspci -vv`, LnkSta), and other load of the node",
    2: "the way between both nodes' switches, and other load of both nodes",
}
_LOOKS = {
    "rdma": "memory that may be locked (`ulimit -l` in the image), the RDMA device in the pod, and the partition of its port",
    "late": "the way between the switches, congestion, and other load of the nodes",
    "allreduce": "the last words above, and the same all-reduce by hand with NCCL_DEBUG=INFO; TCP and RDMA between the pairs are tested above",
    "port": "this port's cable and its two ends: it has trained at a lower width or speed (`ibstat`, `iblinkinfo`)",
}
NETDEV_MTU = "the `mtu` of this network in node.yaml, and of the PF: IPoIB takes it from the mode and from the partition of the port"
PATH_MTU = "the MTU of the switch's port (Ethernet), or of the partition in the subnet manager (`mtu=5` is 4096 bytes in opensm's partitions.conf)"

SHARED_RATE = (
    "the model of these nodes' cards: older ones are as they should be, and a limit that they reach (`--least-rdma-gbits`, `--least-gbits`) ends this; "
    "newer ones have trained at a lower width or speed (`ibstat`, `iblinkinfo`)"
)
LIBIBVERBS = "the image has no libibverbs.so.1: install rdma-core's libibverbs and its providers in it (Debian: libibverbs1, ibverbs-providers)"
MEMLOCK = "memory that may be locked: {} KiB in this pod, too little for RDMA (`ulimit -l`); `memlock: unlimited` in node.yaml raises it"
NCCL_SAYS = "what NCCL says of RDMA (`NCCL_DEBUG=INFO`, its lines `NET/IB`), and whether /dev/infiniband is in the pod"
OTHER_PATH = "variables of the image or the pod that name interfaces (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, NCCL_NET_PLUGIN), and the routes in the pod"
WRONG_SUM = "the memory, the GPU and the card of this node: data were changed on their way, or in memory"
BUSY_RANKS = "the slowest pairs of this rail above, the GPUs' place beside the card (`nvidia-smi topo -m`), and other load of the nodes"


def look(kind: str, nodes: int) -> str:
    """Return what to look at; `nodes` is how many a finding names: 0 for the whole rail, 1, or 2 for a pair."""
    return {"cut": _CUT, "slow": _SLOW}.get(kind, {}).get(nodes) or _LOOKS.get(kind, "")
