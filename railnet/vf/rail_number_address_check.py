"""Decides whether a node's addresses can follow from the numbers of its rails. Pure."""

from collections.abc import Iterator

from railnet.vf.inventory import Inventory
from railnet.vf.permitted_networks import Networks, SliceIpam
from railnet.vf.rail_memory import FILE, NAME_THEM


def splits(networks: Networks) -> frozenset[int]:
    """Return the numbers of rails that the networks say, in `ipam.rails`."""
    return frozenset(
        network.ipam.rails
        for network in networks
        if isinstance(network.ipam, SliceIpam) and network.ipam.rails is not None
    )


def why_no_address(ipam: SliceIpam, inventory: Inventory) -> str | None:
    """Return why a network can give no address on this node, with the remedy; None if it can.

    Rails that node.yaml names may be fewer than `ipam.rails`: their numbers are not counted from what the node shows.
    """
    if inventory.named_rails is not None or inventory.numbers is None:
        return None
    if inventory.numbers.unsettled is not None:
        return inventory.numbers.unsettled
    count = len(inventory.numbers.memory)
    if not count or ipam.rails in (None, count):
        return None
    return (
        f"ipam.rails is {ipam.rails}, but this node has {count} {'rail' if count == 1 else 'rails'} by its memory ({FILE}): correct "
        f"ipam.rails on all nodes, or {NAME_THEM}"
    )


def reasons(networks: Networks, inventory: Inventory) -> Iterator[str]:
    """Yield what an administrator must do about rails: cards whose rail is not certain, and networks that give no address.

    A rail without a card is none of them: the node's other rails are served.
    """
    yield from dict.fromkeys(
        rail.reason for _, rail in inventory.all_rails() if rail.reason is not None and (rail.pf or rail.vfs)
    )
    if inventory.unsettled is not None:
        yield f"no pod gets an address by its rail: {inventory.unsettled}"
        return
    for network in networks:
        if isinstance(network.ipam, SliceIpam) and (why := why_no_address(network.ipam, inventory)) is not None:
            yield f"networks.{network.name}: {why}"


def why_no_vf(networks: Networks, inventory: Inventory) -> str | None:
    """Return why no VF of this node can serve a pod: none of its networks can give an address; None if one can."""
    whys = [
        why_no_address(network.ipam, inventory) if isinstance(network.ipam, SliceIpam) else None for network in networks
    ]
    return whys[0] if whys and None not in whys else None
