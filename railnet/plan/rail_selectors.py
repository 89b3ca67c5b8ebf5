"""Which conditions name the rails of a kind of nodes, and when PCI addresses must name them. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any

from railnet.plan.node_kinds import NodeKind, Remarks, names
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import PfSelector, digits


def why_named(kind: NodeKind, rails: int) -> str | None:
    """Return why `rails` must name the addresses, None if the nodes' own numbers do (railnet/vf/rail_memory.py, rail_number_address_check.py)."""
    if kind.size < rails:
        return f"other nodes have {rails} rails, and a node with fewer must name them"
    for node in kind.nodes:
        wanted = kind.rails[node.name]
        if node.named:
            return (
                f"the configuration of {node.name} names them, and what the node itself remembers is not reported then"
            )
        more = [address for address in node.rails if address not in wanted]
        if more:
            return f"{node.name} already remembers {more[0]} as a rail, and a condition takes no rail away"
        if len(node.rails) not in (0, rails):
            return f"{node.name} remembers {len(node.rails)} of {rails} rails"
    if len(kind.layouts) == 1 and len({node.rails for node in kind.nodes if node.rails}) > 1:
        return "the nodes number the same cards in different orders"
    return None


def selector(kind: NodeKind) -> PfSelector | None:
    """Return the fewest conditions that the rails of all nodes of a kind meet and no other card does; None if there are none."""
    cards = [card for _, card in kind.cards()]
    if not cards or not all(card.model for card in cards):
        return None
    # A card that is missing tells no more than its model, which is that of the others.
    models = tuple(sorted({digits(card.model.partition(":")[2]) for card in cards}))
    functions = tuple(sorted({address.function for rails in kind.rails.values() for address in rails}))
    numa = tuple(sorted({card.numa_node for card in cards if card.numa_node is not None}))
    tried: list[PfSelector] = [
        PfSelector(pf_device=models),
        PfSelector(pf_device=models, function=functions),
        *(
            (
                PfSelector(pf_device=models, numa_node=numa),
                PfSelector(pf_device=models, function=functions, numa_node=numa),
            )
            if numa
            else ()
        ),
    ]
    unwanted = [
        (card.model, address.function, card.numa_node)
        for node in kind.nodes
        for card in node.cards
        if (address := card.address) in kind.others[node.name]
    ]
    for conditions in tried:
        if not any(_meets(conditions, *facts) for facts in unwanted):
            return conditions
    return None


def _meets(conditions: PfSelector, model: str, function: int, numa_node: int | None) -> bool:
    """Return whether a card meets conditions; one of an unknown model may meet them."""
    return (
        (not model or model.partition(":")[2] in conditions.pf_device)
        and (not conditions.function or function in conditions.function)
        and (not conditions.numa_node or numa_node in conditions.numa_node)
    )


def is_virtual(kind: NodeKind) -> bool:
    """Return whether all rails of a kind are VFs without a PF, as in virtual machines."""
    cards = [card for _, card in kind.cards()]
    return bool(cards) and all(card.lone for card in cards)


def written(conditions: PfSelector) -> dict[str, list[Any]]:
    """Return conditions as node.yaml has them."""
    keys: dict[str, Collection[Any]] = {
        "pfDevice": conditions.pf_device,
        "function": conditions.function,
        "numaNode": conditions.numa_node,
    }
    return {key: list(listed) for key, listed in keys.items() if listed}


def rail_order(kind: NodeKind, remarks: Remarks) -> tuple[PciAddress, ...]:
    """Return the rails of nodes with one layout in the order that most of them have, and say whose numbers change by it."""
    wanted = kind.rails[kind.nodes[0].name]
    orders = Counter(
        order
        for node in kind.nodes
        if len(order := tuple(address for address in node.rails if address in wanted)) == len(wanted)
    )
    order = max(orders, key=lambda each: (orders[each], tuple(reversed(each))), default=wanted)
    changed = [node.name for node in kind.nodes if node.rails[: len(order)] != order and node.rails]
    if changed:
        remarks.wrong.append(
            f"{names(changed)}: the numbers of rails change by this list; end the pods with rails on these nodes before it is applied"
        )
    going: dict[str, list[str]] = defaultdict(list)
    for node in kind.nodes:
        gone = [f"{number} ({address})" for number, address in enumerate(node.rails) if address not in order]
        if gone:
            going[" and ".join(gone)].append(node.name)
    for gone_rails, which in going.items():
        remarks.wrong.append(
            f"{names(which)}: these are no rails any more by this list, and pods lose them: {gone_rails}; end the pods with rails on these nodes "
            "before it is applied"
        )
    return order
