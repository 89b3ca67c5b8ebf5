"""The memory of a node's rails: which card has which rail, beyond reboots. Pure; `railnet.daemon.rail_memory_file` has the file.

A rail is remembered by the PCI address of its card. The node GUID of the card and its PCI ids tell a card that moved from a
card that was replaced. A card without an RDMA device has no GUID: then the address and the PCI ids are all that is known.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress

FILE = "/var/lib/railnet/rails.json"
"""The path of the memory on the host."""

NAME_THEM = "name the node's PFs in the order of their rails under `rails` in node.yaml"
LARGEST_BYTES = 65536  # a few hundred rails
_VERSION = 1
_KEYS = {"rail", "address", "guid", "model"}
_MODEL = re.compile(r"([0-9a-f]{4}:[0-9a-f]{4})?")
_RESTART = "then restart the daemon (delete the node's Railnet pod)"
_FORGET = f"end the pods with a rail on this node, delete {FILE}, {_RESTART}"


class UnreadableRailMemory(ValueError):
    """The bytes are not a memory of rails that this version can use; the message says what is wrong with them."""


class Card(NamedTuple):
    """A PF, or a VF without a PF, as the kernel shows it now.

    `guid` is None while no RDMA device shows a usable one. `model` has the PCI ids of vendor and device. `eligible` says whether
    a card with its link layer can be a rail.
    """

    address: PciAddress
    guid: Guid | None
    model: str
    eligible: bool


class RememberedRail(NamedTuple):
    """The card of one rail. `guid` is None if it is not known yet; `model` is "" if the card was never seen."""

    address: PciAddress
    guid: Guid | None = None
    model: str = ""


RailMemory = tuple[RememberedRail, ...]
"""The remembered rails; the index is the number of the rail."""


@dataclass(frozen=True, slots=True)
class RailNumbers:
    """The node knows this about the numbers of its rails.

    Attributes:
        memory: the remembered rails, as they are on disk.
        unsettled: why no number is known; then the cards are in PCI order, and no address may follow from that. None if the memory
            decides.
        why_not_new: why a card that is not in the memory has no number yet; None if only the file is still to be written.
    """

    memory: RailMemory = ()
    unsettled: str | None = None
    why_not_new: str | None = None


class Place(NamedTuple):
    """The slot of a rail, or of a card that has no number. `reason` says why no pod may have it; None if pods may.

    `occupied` says whether the device in the slot, if there is one, belongs to the rail.
    """

    address: PciAddress
    occupied: bool
    reason: str | None


class CardPlaces(NamedTuple):
    """The places of the rails by number, and those of the cards without a number."""

    rails: tuple[Place, ...]
    unnumbered: tuple[Place, ...]


class Learned(NamedTuple):
    """`learn` returns this: the numbers, with the memory that is to be written, and what is new in it, in words for the log."""

    numbers: RailNumbers
    news: tuple[str, ...] = ()


def place(numbers: RailNumbers, cards: Sequence[Card]) -> CardPlaces:
    """Find the rail of each card by the memory.

    A card that is missing keeps its number. A card whose GUID is remembered for another address has moved: neither the rail of
    that address nor the card is used, until an administrator has decided.
    """
    memory, present = numbers.memory, _by_address(cards)
    moved = _moved(memory, present)
    rails = tuple(
        Place(rail.address, _occupies(present.get(rail.address), rail), _reason(number, memory, present, moved))
        for number, rail in enumerate(memory)
    )
    known = {rail.address for rail in memory}
    words = {at: _moved_words(number, memory[number], at) for number, at in moved.items()}
    why_not_new = numbers.why_not_new or f"its rail is being written to {FILE}"
    others = sorted(
        card.address for card in cards if card.address not in known and (card.eligible or card.address in words)
    )
    return CardPlaces(
        rails, tuple(Place(at, True, words.get(at) or f"card {at} has no rail yet: {why_not_new}") for at in others)
    )


def learn(
    memory: RailMemory,
    cards: Sequence[Card],
    *,
    expected: Iterable[PciAddress] = (),
    splits: Collection[int] = (),
    recorded: Mapping[PciAddress, int] | None = None,
) -> Learned:
    """Decide what is to be remembered of the cards that are present.

    A card in the slot of another card keeps the rail of the slot. New cards get the next numbers, in PCI order. They get none
    while a number could be wrong for good: a card has moved, or the number of rails is another than a network says.

    Args:
        memory: the rails that are remembered; () if there is no memory.
        cards: the cards that are present.
        expected: PFs that the configuration names. If there is no memory and such a PF is missing, it gets its number, too.
        splits: the values of `ipam.rails` of the node's networks.
        recorded: the rail of each card that a running sandbox has by its record. It is compared only if there is no memory.
    """
    present = _by_address(cards)
    moved = _moved(memory, present)
    updated, news = _updated(memory, present, moved)
    new = _newcomers(memory, present, set(moved.values()), expected)
    if not new:
        return Learned(RailNumbers(updated), news)
    why = _why_not(memory, new, moved, splits, recorded or {})
    if why is not None:
        numbers = RailNumbers(updated, None, why) if memory else RailNumbers((), why)
        return Learned(numbers, news)
    added = tuple(
        f"rail {number} is {_described(rail)}{'' if rail.address in present else ', which is missing'}: remembered in {FILE}"
        for number, rail in enumerate(new, start=len(memory))
    )
    return Learned(RailNumbers((*updated, *new)), (*news, *added))


def unreadable(error: object) -> str:
    """Say what an administrator must do about a memory that cannot be used."""
    return (
        f"{FILE}, which says which card is which rail, cannot be used: {error!s:.200}; correct it, or {NAME_THEM}, or delete it "
        "if every card of the node is present"
    )


def unwritable(error: object) -> str:
    """Say what an administrator must do about a memory that cannot be written."""
    return f"which card is which rail cannot be written to {FILE}: {error!s:.200}; make it writable (it is tried again), or {NAME_THEM}"


def encode(memory: RailMemory) -> bytes:
    """Return the memory as JSON that an administrator can read and change."""
    rails = [
        {
            "rail": number,
            "address": str(rail.address),
            "guid": None if rail.guid is None else rail.guid.quads,
            "model": rail.model,
        }
        for number, rail in enumerate(memory)
    ]
    lines = ",\n".join(f"  {json.dumps(rail)}" for rail in rails)
    return f'{{\n "version": {_VERSION},\n "rails": [\n{lines}\n ]\n}}\n'.encode()


def parse(raw: bytes) -> RailMemory:
    """Parse what `encode` wrote, perhaps changed by an administrator.

    Raises:
        UnreadableRailMemory: the bytes are something else, or name a rail or a card twice, or leave out a number.
    """
    try:
        body = json.loads(raw)
        if type(body) is not dict or type(body.get("version")) is not int:
            raise UnreadableRailMemory('it has no "version"')
        if body["version"] != _VERSION:
            raise UnreadableRailMemory(f"it has version {body['version']!r:.40}, and this Railnet reads {_VERSION}")
        rail_by_number = dict(_parse_rail(entry) for entry in _list(body["rails"]))
        memory = tuple(rail_by_number[number] for number in sorted(rail_by_number))
        if len(rail_by_number) != len(body["rails"]) or sorted(rail_by_number) != list(range(len(rail_by_number))):
            raise UnreadableRailMemory("its rails are not 0, 1, 2, …, each of them once")
    except UnreadableRailMemory:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableRailMemory(f"{type(error).__name__}: {error!s:.200}") from None
    _check_distinct("address", [rail.address for rail in memory])
    _check_distinct("guid", [rail.guid for rail in memory if rail.guid is not None])
    return memory


def _parse_rail(entry: Any) -> tuple[int, RememberedRail]:
    if type(entry) is not dict or not entry.keys() <= _KEYS or type(entry.get("rail")) is not int:
        raise UnreadableRailMemory(f"{entry!r:.80} is no rail; it should have the keys {', '.join(sorted(_KEYS))}")
    guid, model = entry.get("guid"), entry.get("model", "")
    if type(model) is not str or _MODEL.fullmatch(model) is None:
        raise UnreadableRailMemory(f"model {model!r:.40} should be PCI ids such as 15b3:1021")
    known = None if guid is None else Guid.parse(guid)
    if known is not None and not known.usable:
        raise UnreadableRailMemory(f"guid {known.quads} is none that a card can have")
    return entry["rail"], RememberedRail(PciAddress.parse(entry["address"]), known, model)


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError(f"{value!r:.40} is where a list should be")
    return value


def _check_distinct(key: str, values: Sequence[object]) -> None:
    if len(set(values)) != len(values):
        raise UnreadableRailMemory(f"two rails have the same {key}")


def _by_address(cards: Sequence[Card]) -> dict[PciAddress, Card]:
    """Return the cards without values that identify no card: a GUID that two of them show, and PCI ids that are none."""
    count = Counter(card.guid for card in cards)
    return {
        card.address: card._replace(
            guid=card.guid if count[card.guid] == 1 else None, model=card.model if _MODEL.fullmatch(card.model) else ""
        )
        for card in cards
    }


def _moved(memory: RailMemory, present: Mapping[PciAddress, Card]) -> dict[int, PciAddress]:
    """Return the rails whose card is at another address than the remembered one, with that address."""
    at = {card.guid: card.address for card in present.values() if card.guid is not None}
    moved: dict[int, PciAddress] = {}
    for number, rail in enumerate(memory):
        here = present.get(rail.address)
        if rail.guid in at and (here is None or here.guid != rail.guid):
            moved[number] = at[rail.guid]
    return moved


def _reason(
    number: int, memory: RailMemory, present: Mapping[PciAddress, Card], moved: Mapping[int, PciAddress]
) -> str | None:
    rail = memory[number]
    if number in moved:
        return _moved_words(number, rail, moved[number])
    for other, at in moved.items():
        if at == rail.address:
            return _moved_words(other, memory[other], at)
    card = present.get(rail.address)
    if card is None and not rail.model:
        return (
            f"rail {number} has no card: no card was ever seen at {rail.address}, which `provision` named at the first start; "
            f"if the address is wrong, correct it, and {_FORGET}"
        )
    if card is None:
        return (
            f"rail {number} has no card: {_described(rail)} is not on PCI; the number is kept for it, or for another card in its slot; "
            f"if no node has this rail any more, {_FORGET}"
        )
    if not _occupies(card, rail):
        return f"rail {number} has no card: the device in the slot of {_described(rail)} is another ({card.model}), and no rail"
    return None


def _occupies(card: Card | None, rail: RememberedRail) -> bool:
    """Return whether a card in the slot of a rail has the rail. An Ethernet card in the slot of an InfiniBand card does not.

    The same model does: its link layer is not known while its driver is being loaded.
    """
    return card is not None and (card.eligible or card.model == rail.model)


def _moved_words(number: int, rail: RememberedRail, at: PciAddress) -> str:
    guid = "" if rail.guid is None else rail.guid.quads
    return (
        f"the card of rail {number} (GUID {guid}) has moved from {rail.address} to {at}, so its rail is not certain: put it back; or, in "
        f'{FILE}, set the "address" of rail {number} to {at} if its cable moved with it, else its "guid" to null, {_RESTART}'
    )


def _described(rail: RememberedRail) -> str:
    known = [part for part in (rail.model, rail.guid and f"GUID {rail.guid.quads}") if part]
    return f"card {rail.address}" + (f" ({', '.join(known)})" if known else "")


def _updated(
    memory: RailMemory, present: Mapping[PciAddress, Card], moved: Mapping[int, PciAddress]
) -> tuple[RailMemory, tuple[str, ...]]:
    updated, news = [], []
    for number, rail in enumerate(memory):
        card = present.get(rail.address)
        if card is None or _reason(number, memory, present, moved) is not None:
            updated.append(rail)
            continue
        newer = RememberedRail(rail.address, card.guid or rail.guid, card.model)
        if (rail.guid is not None and newer.guid != rail.guid) or (rail.model and newer.model != rail.model):
            news.append(f"rail {number}: {_described(rail)} was replaced, and {_described(newer)} keeps the rail")
        updated.append(newer)
    return tuple(updated), tuple(news)


def _newcomers(
    memory: RailMemory,
    present: Mapping[PciAddress, Card],
    moved_to: Collection[PciAddress],
    expected: Iterable[PciAddress],
) -> RailMemory:
    known = {rail.address for rail in memory}
    new = {card.address for card in present.values() if card.eligible} - known - set(moved_to)
    # A node without a card may have the same configuration as nodes with cards.
    absent = {address for address in expected if address not in present} if new and not memory else set()
    return tuple(
        RememberedRail(address)
        if (card := present.get(address)) is None
        else RememberedRail(address, card.guid, card.model)
        for address in sorted(new | absent)
    )


def _why_not(
    memory: RailMemory,
    new: RailMemory,
    moved: Mapping[int, PciAddress],
    splits: Collection[int],
    recorded: Mapping[PciAddress, int],
) -> str | None:
    """Return why new cards get no numbers now; None if they get them."""
    if moved:
        number, at = next(iter(moved.items()))
        return _moved_words(number, memory[number], at)
    count = len(memory) + len(new)
    if splits and count not in splits:
        shown = ", ".join(str(rail.address) for rail in (*memory, *new))
        wanted = " or ".join(map(str, sorted(splits)))
        return (
            f"ipam.rails is {wanted}, but this node has {count} {'rail' if count == 1 else 'rails'} ({shown}): repair a missing card, "
            f"or correct ipam.rails on all nodes, or {NAME_THEM}"
        )
    for number, rail in enumerate(new):
        if not memory and recorded.get(rail.address, number) != number:
            return (
                f"running pods have card {rail.address} as rail {recorded[rail.address]}, but in PCI order it is rail {number} now: repair a "
                f"missing card, or {NAME_THEM}, or end the pods with a rail on this node"
            )
    return None
