"""Kinds of nodes: which nodes are alike, and which of their cards are rails. A broken card makes no kind of its own. Pure.

A node's shape is the models of its cards, with those that its daemon remembers and does not show. Nodes with one shape are a kind. A few
nodes that lack cards of a larger kind belong to that kind, and this is said.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from railnet.plan.node_facts import SeenCard, SeenNode
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import LinkType

_FEW = 4  # a node lacks a quarter of its kind's cards at most, or one: a node with half the cards is another machine
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are alike.

    Attributes:
        rails: the cards that are rails, by the name of the node, in PCI order; also those that a node lacks, if their addresses are known.
        others: cards with a link type of rails that are no rails, by the name of the node.
        model, rate: of the rails; empty and None if they are not known.
    """

    nodes: tuple[SeenNode, ...]
    rails: Mapping[str, tuple[PciAddress, ...]]
    others: Mapping[str, tuple[PciAddress, ...]]
    model: str
    rate: str | None

    @property
    def size(self) -> int:
        """Return the number of rails; nodes whose broken cards have no known address have fewer."""
        return max(len(rails) for rails in self.rails.values())

    @property
    def layouts(self) -> tuple[tuple[PciAddress, ...], ...]:
        """Return the different lists of addresses that its nodes have for their rails."""
        return tuple(dict.fromkeys(self.rails[node.name] for node in self.nodes))

    def cards(self) -> Iterator[tuple[SeenNode, SeenCard]]:
        """Yield each card that is a rail and is there, with its node."""
        for node in self.nodes:
            present = {card.address: card for card in node.cards}
            yield from ((node, present[address]) for address in self.rails[node.name] if address in present)

    def of_layout(self, layout: tuple[PciAddress, ...]) -> "NodeKind":
        """Return the kind of those nodes alone that have a layout."""
        return self.of_nodes(node for node in self.nodes if self.rails[node.name] == layout)

    def of_nodes(self, some: Iterable[SeenNode]) -> "NodeKind":
        """Return the kind of some of its nodes alone."""
        nodes = tuple(some)
        rails, others = ({node.name: each[node.name] for node in nodes} for each in (self.rails, self.others))
        return replace(self, nodes=nodes, rails=rails, others=others)


class KindsOfNodes(NamedTuple):
    """What `kinds` returns.

    Attributes:
        cardless: nodes without a card that could be a rail.
        assumed, wrong: what was assumed, and what an administrator should look at; one sentence each.
    """

    kinds: tuple[NodeKind, ...]
    cardless: tuple[SeenNode, ...]
    assumed: tuple[str, ...]
    wrong: tuple[str, ...]


class _Expected(NamedTuple):
    """A node with the model of each card that it should have; empty if no node tells it."""

    node: SeenNode
    models: Mapping[PciAddress, str]

    @property
    def shape(self) -> tuple[str, ...]:
        return tuple(sorted(self.models.values()))


class Remarks(NamedTuple):
    """Sentences for the administrator, which are added to: what was assumed, and what should be looked at."""

    assumed: list[str]
    wrong: list[str]


def kinds(nodes: Iterable[SeenNode]) -> KindsOfNodes:
    """Return the kinds of nodes, those with most nodes first."""
    remarks = Remarks([], [])
    seen = sorted(nodes, key=lambda node: node.name)
    eligible = {node.name: _eligible(node) for node in seen}
    with_cards = [node for node in seen if eligible[node.name] or node.absent]
    expected = _expected(with_cards, eligible)
    by_shape: dict[tuple[tuple[str, ...], frozenset[LinkType]], list[_Expected]] = defaultdict(list)
    for each in expected:
        by_shape[each.shape, each.node.link_types].append(each)
    groups = _with_broken(list(by_shape.values()), remarks)
    found_kinds = [kind for group in groups for kind in _kinds_of_shape(group, eligible, remarks)]
    found_kinds.sort(key=lambda kind: (-len(kind.nodes), kind.nodes[0].name))
    cardless = tuple(node for node in seen if node not in with_cards)
    _say_other_link_types(seen, remarks)
    return KindsOfNodes(tuple(found_kinds), cardless, tuple(remarks.assumed), tuple(remarks.wrong))


def names(nodes: Iterable[str]) -> str:
    """Return some names of nodes as text: the first ones, and how many more there are."""
    listed = list(nodes)
    more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
    return ", ".join(listed[:_MOST_NAMES]) + more


def _eligible(node: SeenNode) -> dict[PciAddress, SeenCard]:
    """Return the cards that can be rails; an older daemon reports only such cards."""
    return {card.address: card for card in node.cards if card.link_type is None or card.link_type in node.link_types}


def _expected(nodes: Sequence[SeenNode], eligible: Mapping[str, Mapping[PciAddress, SeenCard]]) -> list[_Expected]:
    """Return each node with its cards' models. The model of a card that is not there is that of the other nodes at this address."""
    seen_at: dict[PciAddress, Counter[str]] = defaultdict(Counter)
    for cards in eligible.values():
        for card in cards.values():
            if card.model:
                seen_at[card.address][card.model] += 1
    expected = []
    for node in nodes:
        cards = eligible[node.name]
        own = {card.model for card in cards.values() if card.model}
        models = {}
        for address in sorted({*cards, *node.absent}):
            known = cards[address].model if address in cards else ""
            at = seen_at[address].most_common(1)
            models[address] = known or (at[0][0] if at else next(iter(own)) if len(own) == 1 else "")
        expected.append(_Expected(node, models))
    return expected


def _with_broken(groups: list[list[_Expected]], remarks: Remarks) -> list[list[_Expected]]:
    """Put nodes that lack a few cards of a larger kind into that kind."""
    groups = sorted(groups, key=lambda group: (-len(group[0].models), -len(group), group[0].node.name))
    kept: list[list[_Expected]] = []
    for group in groups:
        larger = next((other for other in kept if _lacks_few(group, other)), None)
        if larger is None:
            kept.append(group)
            continue
        lacking = len(larger[0].models) - len(group[0].models)
        cards = f"{lacking} {'card' if lacking == 1 else 'cards'}"
        who = names(each.node.name for each in group)
        alike_gpus = _have_gpus_of(group, larger)
        if len(group) < len(larger) and alike_gpus:
            for each in group:
                remarks.wrong.append(
                    f"{each.node.name} has {len(each.models)} cards, and the other nodes of its kind, such as {larger[0].node.name}, have "
                    f"{len(larger[0].models)}{_lacked(each, larger)}: it was taken for a node of that kind with {cards} broken or missing. If "
                    "the node never had them, give it a group of its own"
                )
            larger.extend([_Expected(each.node, {**_peers_models(each, larger), **each.models}) for each in group])
        else:
            why = "as many nodes or more lack them" if alike_gpus else "they have another number of GPUs"
            remarks.wrong.append(
                f"{who}: {cards} fewer than {names(each.node.name for each in larger)}, at the same addresses otherwise. They were taken for another "
                f"kind, because {why}. If the cards are broken, repair them and plan again"
            )
            kept.append(group)
    return kept


def _lacks_few(group: Sequence[_Expected], larger: Sequence[_Expected]) -> bool:
    lacking = Counter(larger[0].shape)
    lacking.subtract(group[0].shape)
    few = max(1, len(larger[0].models) // _FEW)
    if min(lacking.values()) < 0 or not 0 < lacking.total() <= few:
        return False
    if group[0].node.link_types != larger[0].node.link_types:
        return False
    addresses = {address for each in larger for address in each.models}
    return all(each.models.keys() <= addresses for each in group)


def _have_gpus_of(group: Sequence[_Expected], larger: Sequence[_Expected]) -> bool:
    """Return whether nodes have a number of GPUs that a kind's nodes have; an unknown number may be any."""
    gpus = {each.node.gpus for each in larger}
    return None in gpus or all(each.node.gpus is None or each.node.gpus in gpus for each in group)


def _peers_models(lacking: _Expected, larger: Sequence[_Expected]) -> Mapping[PciAddress, str]:
    """Return the models of a kind's cards by address, if all its nodes have the same addresses; {} otherwise."""
    layouts = {tuple(sorted(each.models)) for each in larger}
    return dict(larger[0].models) if len(layouts) == 1 and lacking.models.keys() <= larger[0].models.keys() else {}


def _lacked(lacking: _Expected, larger: Sequence[_Expected]) -> str:
    addresses = _peers_models(lacking, larger).keys() - lacking.models.keys()
    return (
        f" ({', '.join(map(str, sorted(addresses)))} {'is' if len(addresses) == 1 else 'are'} missing)"
        if addresses
        else ""
    )


def _kinds_of_shape(
    group: Sequence[_Expected], eligible: Mapping[str, Mapping[PciAddress, SeenCard]], remarks: Remarks
) -> list[NodeKind]:
    """Choose the rails of nodes of one shape. Nodes whose rails are of different models or numbers are different kinds.

    Nodes with other addresses may be another machine, so the rails are chosen for each set of addresses by itself: the faster cards of one
    machine do not make the slower cards of another one storage.
    """
    nodes = tuple(sorted((each.node for each in group), key=lambda node: node.name))
    models = {each.node.name: each.models for each in group}
    unused = _unused_ports(nodes, models, eligible, remarks)
    by_model = _rates_of_models(nodes, models, eligible)
    alike: dict[tuple[str, int], list[NodeKind]] = defaultdict(list)
    whole = max(map(len, models.values()))
    for same in sorted(_of_same_addresses(nodes, models), key=lambda some: -len(models[some[0].name])):
        rates = _rates(same, models, eligible, by_model, remarks)
        kind = _kind(same, models, rates, unused)
        _say_others(kind, models, rates, unused, remarks)
        lacking = whole - len(models[same[0].name])  # cards of unknown addresses, which may be rails
        sizes = (size for model, size in alike if model == kind.model and kind.size <= size <= kind.size + lacking)
        alike[kind.model, next(sizes, kind.size)].append(kind)
    found_kinds = [_joined(each) for each in alike.values()]
    for kind in found_kinds:
        _say_broken(kind, remarks)
    return found_kinds


def _of_same_addresses(
    nodes: Sequence[SeenNode], models: Mapping[str, Mapping[PciAddress, str]]
) -> Iterable[list[SeenNode]]:
    """Return the nodes whose cards have the same addresses, together."""
    by_addresses: dict[tuple[PciAddress, ...], list[SeenNode]] = defaultdict(list)
    for node in nodes:
        by_addresses[tuple(sorted(models[node.name]))].append(node)
    return by_addresses.values()


def _kind(
    nodes: Sequence[SeenNode],
    models: Mapping[str, Mapping[PciAddress, str]],
    rates: Mapping[tuple[str, PciAddress], str | None],
    unused: Collection[PciAddress],
) -> NodeKind:
    """Choose the rails among the cards of nodes with the same addresses: the model and the rate with the most bandwidth."""
    classes: dict[tuple[str, str | None], int] = Counter()
    for node in nodes:
        for address, model in models[node.name].items():
            if address not in unused:
                classes[model, rates[node.name, address]] += 1
    model, rate = max(classes, key=lambda each: (float(each[1] or 0) * classes[each], classes[each], each[0]))
    chosen: dict[str, tuple[PciAddress, ...]] = {}
    others: dict[str, tuple[PciAddress, ...]] = {}
    for node in nodes:
        is_rail = {
            address: (card_model, rates[node.name, address]) == (model, rate) and address not in unused
            for address, card_model in models[node.name].items()
        }
        chosen[node.name] = tuple(sorted(address for address, rail in is_rail.items() if rail))
        others[node.name] = tuple(sorted(address for address, rail in is_rail.items() if not rail))
    return NodeKind(tuple(nodes), chosen, others, model, rate)


def _joined(alike: Sequence[NodeKind]) -> NodeKind:
    """Return one kind of kinds whose rails are of one model and number; its rate is that of most nodes."""
    nodes = tuple(sorted((node for kind in alike for node in kind.nodes), key=lambda node: node.name))
    rails = {name: each for kind in alike for name, each in kind.rails.items()}
    others = {name: each for kind in alike for name, each in kind.others.items()}
    rate = _most(Counter(kind.rate for kind in alike for _ in kind.nodes if kind.rate is not None))
    return NodeKind(nodes, rails, others, alike[0].model, rate)


def _rates_of_models(
    nodes: Sequence[SeenNode],
    models: Mapping[str, Mapping[PciAddress, str]],
    eligible: Mapping[str, Mapping[PciAddress, SeenCard]],
) -> Mapping[str, Counter[str]]:
    by_model: dict[str, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        for address, card in eligible[node.name].items():
            if card.rate is not None:
                by_model[models[node.name][address]][card.rate] += 1
    return by_model


def _rates(
    nodes: Sequence[SeenNode],
    models: Mapping[str, Mapping[PciAddress, str]],
    eligible: Mapping[str, Mapping[PciAddress, SeenCard]],
    of_kind: Mapping[str, Counter[str]],
    remarks: Remarks,
) -> dict[tuple[str, PciAddress], str | None]:
    """Return the rate that each card of nodes with the same addresses should have: that of most nodes at its address.

    So a slow cable makes no kind of its own. An address without an ACTIVE port has the rate of the other cards of its model, there or else
    in the whole kind (`of_kind`).
    """
    by_address: dict[PciAddress, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        for address, card in eligible[node.name].items():
            if card.rate is not None:
                by_address[address][card.rate] += 1
    by_model = _rates_of_models(nodes, models, eligible)
    rates: dict[tuple[str, PciAddress], str | None] = {}
    for node in nodes:
        for address, model in models[node.name].items():
            own = eligible[node.name].get(address)
            rate = (
                _most(by_address[address])
                or _most(by_model.get(model, Counter()))
                or _most(of_kind.get(model, Counter()))
            )
            rates[node.name, address] = rate
            if own is not None and own.rate is not None and own.rate != rate:
                remarks.wrong.append(
                    f"{node.name}: the port of {address} has {own.rate} Gb/s, and most nodes have {rate} Gb/s at this address: look at its cable"
                )
    return rates


def _most(rates: Counter[str]) -> str | None:
    """Return the rate that most cards have, the highest of several."""
    return max(rates, key=lambda rate: (rates[rate], float(rate)), default=None)


def _unused_ports(
    nodes: Sequence[SeenNode],
    models: Mapping[str, Mapping[PciAddress, str]],
    eligible: Mapping[str, Mapping[PciAddress, SeenCard]],
    remarks: Remarks,
) -> frozenset[PciAddress]:
    """Return the ports without a cable of cards with several ports: ACTIVE on no node, while the first port of the card is on each."""
    active = {card.address for node in nodes for card in eligible[node.name].values() if card.active}
    addresses = {address for node in nodes for address in models[node.name]}
    unused = frozenset(
        address
        for address in addresses - active
        if address.function and not _is_lone(nodes, address) and address._replace(function=0) in active
    )
    if unused:
        ports = ", ".join(map(str, sorted(unused)[:_MOST_NAMES]))
        remarks.assumed.append(
            f"{names(node.name for node in nodes)}: second ports that are ACTIVE on no node have no cable, so they are no rails ({ports}{', …' if len(unused) > _MOST_NAMES else ''})"
        )
    return unused


def _is_lone(nodes: Sequence[SeenNode], address: PciAddress) -> bool:
    """Return whether the function at an address is a VF without a PF on a node: its function number is that of no port."""
    return any(card.lone and card.address == address for node in nodes for card in node.cards)


def _say_others(
    kind: NodeKind,
    models: Mapping[str, Mapping[PciAddress, str]],
    rates: Mapping[tuple[str, PciAddress], str | None],
    unused: Collection[PciAddress],
    remarks: Remarks,
) -> None:
    """Say which cards of nodes with the same addresses are no rails."""
    node = kind.nodes[0].name
    others = [address for address in kind.others[node] if address not in unused]
    classes = dict.fromkeys((models[node][address], rates[node, address]) for address in others)
    if others:
        shown = ", ".join(f"{model or 'of an unknown model'} at {_gbits(rate)}" for model, rate in classes)
        remarks.assumed.append(
            f"{names(each.name for each in kind.nodes)}: the {kind.size} cards {kind.model} at {_gbits(kind.rate)} are the rails; the others "
            f"({', '.join(map(str, others))}: {shown}) are for storage or the like, and get no VFs"
        )
    if any(model == kind.model for model, _ in classes):
        remarks.wrong.append(
            f"{names(each.name for each in kind.nodes)}: cards of one model have different rates. If the slower ones are rails with a bad cable, "
            "repair them and plan again"
        )


def _say_broken(kind: NodeKind, remarks: Remarks) -> None:
    for node in kind.nodes:
        present = {card.address: card for card in node.cards}
        for address in kind.rails[node.name]:
            card = present.get(address)
            if card is None and address in node.rails:
                remarks.wrong.append(
                    f"{node.name}: the card of rail {node.rails.index(address)}, {address}, is missing; the rail was kept for it"
                )
            elif card is not None and card.trouble:
                remarks.wrong.append(f"{node.name}: {address}: {card.trouble}")
            elif card is not None and not card.active and not card.lone:
                remarks.wrong.append(f"{node.name}: the port of {address} is not ACTIVE; it was taken for a rail")


def _say_other_link_types(nodes: Iterable[SeenNode], remarks: Remarks) -> None:
    by_words: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        others = [card for card in node.cards if card.link_type is not None and card.link_type not in node.link_types]
        if others:
            count, kind = len(others), others[0].link_type
            ports = f"1 port of type {kind} is no rail" if count == 1 else f"{count} ports of type {kind} are no rails"
            asked = " and ".join(sorted(node.link_types))
            by_words[f"{ports}: the pools that run there ask for {asked} alone"].append(node.name)
    for words, which in by_words.items():
        remarks.assumed.append(f"{names(which)}: {words}")


def _gbits(rate: str | None) -> str:
    return "an unknown rate" if rate is None else f"{rate} Gb/s"
