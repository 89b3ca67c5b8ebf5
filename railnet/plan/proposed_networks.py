"""The part of node.yaml that all nodes have: how many rails `ipam.rails` says, and a network for each partition. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from railnet.plan.node_kinds import NodeKind, Remarks, names
from railnet.plan.running_configuration import RunningConfiguration
from railnet.plan.vf_count import RunningNetwork

_PARTITION, _DEFAULT_PARTITION = 0x7FFF, 0x7FFF  # InfiniBand Architecture Specification volume 1, 10.9
_FULL_MEMBER = 0x8000


def rails_of_all(kinds: Sequence[NodeKind], network: RunningNetwork, *, seen_all: bool) -> int:
    """Return the number of rails of every node. A node that was not seen may have as many as run: the number is not lowered then."""
    largest = max((kind.size for kind in kinds), default=0)
    if network.rails is None or (seen_all and not network.disagreement):
        return largest
    return max(largest, network.rails)


def networks(
    kinds: Sequence[NodeKind], rails: int, running: RunningConfiguration, remarks: Remarks
) -> Mapping[str, Any]:
    """Return the key `networks` of all nodes; {} without one."""
    written: dict[str, Any] = {}
    network = running.network
    if network.disagreement:
        remarks.wrong.append(
            f"the network default is not the same everywhere ({network.disagreement}), so its ipam stays as it is: ipam.rails should be {rails} in all"
        )
    elif network.is_slice:
        # Its type and range stand beside it: an `ipam` without its type is refused, and one with it replaces the whole.
        written["default"] = {"ipam": {"type": "slice", "range": str(network.range), "rails": rails}}
        _say_changes(kinds, rails, running, remarks)
    else:
        remarks.assumed.append("the network default gives no addresses by rail, so ipam.rails is left out")
    partitions = dict(_partitions(kinds, running, remarks))
    if partitions:
        remarks.assumed.append(
            "each partition beside the default one is a network of its own without addresses; no namespace may use it until `limits` names it"
        )
    return {"networks": written | partitions} if written or partitions else {}


def _say_changes(kinds: Sequence[NodeKind], rails: int, running: RunningConfiguration, remarks: Remarks) -> None:
    now = {group: _rails_of(document) for group, document in running.documents.items()}
    changed = sorted({number for number in now.values() if number not in (None, rails)})
    if changed:
        remarks.wrong.append(
            f"ipam.rails changes from {' or '.join(map(str, changed))} to {rails}, so pods get other addresses: end all pods with rails before it is applied"
        )
    nodes = [node for kind in kinds for node in kind.nodes if now.get(node.group) is None]
    others = sorted(node.name for node in nodes if len(node.rails) not in (0, rails))
    if others:
        remarks.wrong.append(
            f"ipam.rails is not set now and becomes {rails}: pods on nodes with another number of rails ({names(others)}) get other addresses; end the "
            "pods with rails on these nodes before it is applied"
        )
    if running.unread:
        remarks.wrong.append(
            f"not every configuration that runs was read: look whether the network default has the range {running.network.range} now, and how many "
            "rails; another range or number means other addresses"
        )


def _partitions(
    kinds: Sequence[NodeKind], running: RunningConfiguration, remarks: Remarks
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a network for each partition of which all InfiniBand rails are full members; a network that runs stays as it is."""
    tables = [
        (node.name, {key & _PARTITION for key in card.pkeys if key & _FULL_MEMBER})
        for kind in kinds
        for node, card in kind.cards()
        if card.pkeys and card.active and card.link_type == "infiniband"
    ]
    known = set().union(*(keys for _, keys in tables)) - {_DEFAULT_PARTITION} if tables else set()
    for key in sorted(known):
        shown, name = f"0x{key | _FULL_MEMBER:04x}", f"partition-{key:04x}"
        without = sorted({node for node, keys in tables if key not in keys})
        present = _of_partition(key, name, running)
        if without:
            remarks.wrong.append(
                f"partition {shown} is not on every rail ({names(without)} lack it), so no network was proposed for it"
            )
        elif not present:
            yield name, {"pkey": shown, "ipam": {"type": "none"}}
        elif name in present and name in _networks_of(running.base):
            yield name, _networks_of(running.base)[name]
        else:
            remarks.assumed.append(f"partition {shown}: the network {present[0]} that runs was taken to be its network")


def _of_partition(key: int, name: str, running: RunningConfiguration) -> list[str]:
    """Return the networks that run with a partition, and one of another partition that has its name."""
    return sorted(
        {
            each
            for document in running.documents.values()
            for each, network in _networks_of(document).items()
            if each == name or _key_of(network) == key
        }
    )


def _rails_of(document: Mapping[str, Any]) -> Any:
    network = _networks_of(document).get("default")
    ipam = network.get("ipam") if isinstance(network, dict) else None
    return ipam.get("rails") if isinstance(ipam, dict) else None


def _networks_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    written = document.get("networks")
    return written if isinstance(written, dict) else {}


def _key_of(network: Any) -> int | None:
    key = network.get("pkey") if isinstance(network, dict) else None
    try:
        return (int(key, 16) if isinstance(key, str) else int(key)) & _PARTITION if key is not None else None
    except (TypeError, ValueError):
        return None
