"""How many VFs each rail of a kind of nodes should have. Pure."""

from collections import Counter
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple

from railnet.plan.node_kinds import NodeKind, Remarks, names
from railnet.plan.rail_selectors import is_virtual

_VFS = 8  # without GPUs to count: one for each pod of a node of eight GPUs
_FLANNEL_NETWORK, _FLANNEL_SUBNET = 16, 24  # of kube-flannel's own manifest: a /24 of 10.244.0.0/16 for each node
_IPV6_ADDRESSES = 1 << 16  # a range of IPv6 is never too small for VFs


class RunningNetwork(NamedTuple):
    """What the network `default` of the configurations that run is.

    Attributes:
        is_slice: whether its addresses follow from rails, so that `ipam.rails` is one of its keys.
        range: its range.
        rails: the largest `ipam.rails` of a configuration; None if none has it.
        disagreement: which ranges the configurations have, if they are not the same; empty if they are.
    """

    is_slice: bool = True
    range: IPv4Network | IPv6Network = IPv4Network("10.56.0.0/16")
    rails: int | None = None
    disagreement: str = ""


def vf_count(kind: NodeKind, asked: int | None, network: RunningNetwork, rails: int, remarks: Remarks) -> int | None:
    """Return how many VFs each rail should have; None if none can be made there, or if it is not known.

    Args:
        kind: the nodes.
        asked: the number that the user asks for; None to choose.
        network: whose addresses must suffice.
        rails: the number of rails of all nodes.
        remarks: what was assumed and what is wrong are added here.
    """
    who = names(node.name for node in kind.nodes)
    cards = [card for _, card in kind.cards() if not card.lone]
    offered = [card.totalvfs for card in cards if card.totalvfs]
    if is_virtual(kind):
        remarks.assumed.append(f"{who}: a virtual machine has its VFs from its host, so none are made")
        return None
    if not cards:
        remarks.wrong.append(f"{who}: none of their cards is there, so no VFs are made")
        return None
    if not offered:
        if any(card.totalvfs is None for card in cards):
            remarks.assumed.append(
                f"{who}: their Railnet is too old to say how many VFs the cards offer, so the VFs stay as they are; plan again after the upgrade"
            )
            return None
        remarks.wrong.append(
            f"{who}: no card offers VFs, so no pod can get one: SR-IOV is off in their firmware (mlxconfig: SRIOV_EN, NUM_OF_VFS)"
        )
        return None
    most = min(offered)
    wanted, why = _wanted_vfs(kind, asked, [card.numvfs for card in cards])
    if wanted > most:
        remarks.wrong.append(
            f"{who}: {wanted} VFs of each rail are more than the {most} that the firmware of a card offers; {most} are proposed"
        )
        wanted = most
    remarks.assumed.append(f"{who}: {wanted} VFs of each rail{why}")
    present = sorted({card.numvfs for card in cards} - {0, wanted})
    if present:
        remarks.wrong.append(
            f"{who}: cards that have {' or '.join(map(str, present))} VFs now get {wanted}: the kernel replaces all VFs of a card, so end the pods "
            "with rails on these nodes before it is applied"
        )
    room = _addresses(network, rails)
    if network.is_slice and not network.disagreement and wanted > room:
        remarks.wrong.append(
            f"{who}: {network.range} has {max(room, 0)} addresses of each rail for a node, if flannel gives nodes a /{_FLANNEL_SUBNET} of a "
            f"/{_FLANNEL_NETWORK}, and {wanted} VFs need one each: give networks.default.ipam a larger range"
        )
    return wanted


def _wanted_vfs(kind: NodeKind, asked: int | None, present: Collection[int]) -> tuple[int, str]:
    if asked is not None:
        return asked, ", as asked for"
    counted = Counter(number for number in present if number)
    if counted:
        wanted = max(counted, key=lambda number: (counted[number], number))
        return wanted, ", as they are now: the kernel can only replace all VFs of a card at once"
    gpus = sorted({node.gpus for node in kind.nodes if node.gpus})
    if gpus:
        shown = str(gpus[0]) if len(gpus) == 1 else f"{gpus[0]} to {gpus[-1]}"
        return gpus[-1], f": a pod for each of the {shown} GPUs of a node can have one"
    return _VFS, ": no node says how many GPUs it has"


def _addresses(network: RunningNetwork, rails: int) -> int:
    """Return how many addresses of one rail a node has (railnet/vf/address_slice.py, `node_slice`)."""
    bits = network.range.max_prefixlen - network.range.prefixlen
    if isinstance(network.range, IPv6Network):
        return _IPV6_ADDRESSES
    left = bits - max(rails - 1, 0).bit_length() - (_FLANNEL_SUBNET - _FLANNEL_NETWORK)
    return (1 << left) - 2 if left > 1 else 0
