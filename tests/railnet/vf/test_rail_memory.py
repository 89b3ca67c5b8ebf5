"""Which card has which rail: a row for each decision, and the file."""

import json
from random import Random

import pytest

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from railnet.vf.rail_memory import (
    Card,
    RailMemory,
    RailNumbers,
    RememberedRail,
    UnreadableRailMemory,
    encode,
    learn,
    parse,
    place,
)

IB, ETHERNET = "15b3:1021", "8086:1592"
A, B, C = (PciAddress(0, bus, 0, 0) for bus in (0x03, 0x0C, 0x83))
GUIDS = {A: Guid(0xA), B: Guid(0xB), C: Guid(0xC)}
MEMORY = tuple(RememberedRail(address, GUIDS[address], IB) for address in (A, B))


def a_card(address: PciAddress, guid: int | None = None, *, model: str = IB, eligible: bool = True) -> Card:
    return Card(address, GUIDS[address] if guid is None else Guid(guid) if guid else None, model, eligible)


def rails(memory: RailMemory, *cards: Card) -> list[tuple[PciAddress, bool, bool]]:
    """Return of each rail: its slot, whether it has a card, and whether pods may have it."""
    return [(one.address, one.occupied, one.reason is None) for one in place(RailNumbers(memory), cards).rails]


def unnumbered(memory: RailMemory, *cards: Card) -> list[PciAddress]:
    return [one.address for one in place(RailNumbers(memory), cards).unnumbered]


SERVED_A, SERVED_B = (A, True, True), (B, True, True)


@pytest.mark.parametrize(
    ("cards", "found", "others"),
    [
        ((a_card(A), a_card(B)), [SERVED_A, SERVED_B], []),
        ((a_card(B),), [(A, False, False), SERVED_B], []),
        ((), [(A, False, False), (B, False, False)], []),
        ((a_card(A, 0, eligible=False), a_card(B)), [SERVED_A, SERVED_B], []),
        ((a_card(A, 0xF), a_card(B)), [SERVED_A, SERVED_B], []),
        ((a_card(A, 0xF, model="15b3:1023"), a_card(B)), [SERVED_A, SERVED_B], []),
        ((a_card(A, 0, model=ETHERNET, eligible=False), a_card(B)), [(A, False, False), SERVED_B], []),
        ((a_card(A), a_card(B), a_card(C)), [SERVED_A, SERVED_B], [C]),
        ((a_card(A), a_card(B), a_card(C, eligible=False)), [SERVED_A, SERVED_B], []),
        ((a_card(B), a_card(C, 0xA)), [(A, False, False), SERVED_B], [C]),
        ((a_card(A, 0xF), a_card(B), a_card(C, 0xA)), [(A, True, False), SERVED_B], [C]),
        ((a_card(A, 0xB), a_card(B, 0xA)), [(A, True, False), (B, True, False)], []),
        ((a_card(A, 0xB),), [(A, True, False), (B, False, False)], []),
        ((a_card(A), a_card(B), a_card(C, 0xA)), [SERVED_A, SERVED_B], [C]),
        ((a_card(A, model="?"), a_card(B)), [SERVED_A, SERVED_B], []),
    ],
    ids=[
        "as remembered",
        "the first is missing",
        "all are missing",
        "RDMA device away for a moment",
        "replaced",
        "replaced by another model",
        "an Ethernet card in the slot",
        "a new card",
        "a new Ethernet card",
        "moved to a new slot",
        "moved, and another card in its slot",
        "two cards changed places",
        "the second in the slot of the first",
        "two cards show one GUID",
        "PCI ids that are none",
    ],
)
def test_rail_of_each_card(
    cards: tuple[Card, ...], found: list[tuple[PciAddress, bool, bool]], others: list[PciAddress]
) -> None:
    assert rails(MEMORY, *cards) == found
    assert unnumbered(MEMORY, *cards) == others


def test_reason_of_a_moved_card_says_both_remedies() -> None:
    placement = place(RailNumbers(MEMORY), (a_card(B), a_card(C, 0xA)))

    (reason,) = {placement.rails[0].reason, placement.unnumbered[0].reason}
    assert reason is not None
    assert reason.startswith(
        "the card of rail 0 (GUID 0000:0000:0000:000a) has moved from 0000:03:00.0 to 0000:83:00.0"
    )
    assert 'set the "address" of rail 0 to 0000:83:00.0 if its cable moved with it, else its "guid" to null' in reason


@pytest.mark.parametrize("remedy", [{0: (C, GUIDS[A])}, {0: (A, None)}], ids=["address", "guid"])
def test_remedies_of_a_moved_card_settle_its_rail(remedy: dict[int, tuple[PciAddress, Guid | None]]) -> None:
    cards = (a_card(A, 0xF), a_card(B), a_card(C, 0xA))
    ((address, guid),) = remedy.values()

    after = learn((RememberedRail(address, guid, IB), MEMORY[1]), cards).numbers.memory

    assert all(one.reason is None for one in place(RailNumbers(after), cards).rails)
    assert (after[0].address, after[0].guid) == (address, {A: Guid(0xF), C: Guid(0xA)}[address])


def remembered(memory: RailMemory, *cards: Card, **options: object) -> list[tuple[PciAddress, Guid | None]]:
    return [(one.address, one.guid) for one in learn(memory, cards, **options).numbers.memory]  # type: ignore[arg-type]


KNOWN = [(A, Guid(0xA)), (B, Guid(0xB))]


@pytest.mark.parametrize(
    ("memory", "cards", "expected", "after"),
    [
        ((), (a_card(B), a_card(A)), (), KNOWN),
        ((), (), (), []),
        ((), (), (A,), []),
        ((), (a_card(B),), (A, B), [(A, None), (B, Guid(0xB))]),
        ((), (a_card(B, eligible=False),), (A, B), []),
        (MEMORY, (a_card(B),), (A, B, C), KNOWN),
        (MEMORY, (a_card(A), a_card(B), a_card(C)), (), [*KNOWN, (C, Guid(0xC))]),
        (MEMORY[1:], (a_card(A), a_card(B)), (), [(B, Guid(0xB)), (A, Guid(0xA))]),
        (MEMORY, (a_card(A, 0xF), a_card(B)), (), [(A, Guid(0xF)), (B, Guid(0xB))]),
        (MEMORY, (a_card(A, 0), a_card(B)), (), KNOWN),
        ((RememberedRail(A), MEMORY[1]), (a_card(A), a_card(B)), (), KNOWN),
        (MEMORY, (a_card(A, 0xF), a_card(B), a_card(C, 0xA)), (), KNOWN),
        (MEMORY, (a_card(A, 0, model=ETHERNET, eligible=False), a_card(B)), (), KNOWN),
        ((), (a_card(A, 0xF), a_card(B, 0xF)), (), [(A, None), (B, None)]),
    ],
    ids=[
        "first start",
        "no card",
        "no card, and other nodes' cards in the configuration",
        "first start without a card that `provision` names",
        "no rail, and a card that `provision` names",
        "later a missing card",
        "a new card",
        "a new card before the old one on PCI",
        "replaced",
        "RDMA device away for a moment",
        "GUID known later",
        "moved",
        "another device in the slot",
        "two cards show one GUID",
    ],
)
def test_what_is_remembered(
    memory: RailMemory, cards: tuple[Card, ...], expected: tuple[PciAddress, ...], after: list[tuple[PciAddress, Guid]]
) -> None:
    assert remembered(memory, *cards, expected=expected) == after


@pytest.mark.parametrize(
    ("memory", "cards", "splits", "why"),
    [
        ((), (a_card(B),), {2}, "unsettled"),
        ((), (a_card(A), a_card(B), a_card(C)), {2}, "unsettled"),
        ((), (a_card(A), a_card(B)), {2}, None),
        ((), (a_card(A), a_card(B)), {2, 4}, None),
        ((), (), {2}, None),
        (MEMORY, (a_card(A), a_card(B), a_card(C)), {2}, "why_not_new"),
        (MEMORY, (a_card(A), a_card(B), a_card(C)), {3}, None),
        (MEMORY, (a_card(B),), {2}, None),
    ],
)
def test_another_number_of_rails_than_ipam_rails_gives_no_numbers(
    memory: RailMemory, cards: tuple[Card, ...], splits: set[int], why: str | None
) -> None:
    numbers = learn(memory, cards, splits=splits).numbers

    found = [name for name in ("unsettled", "why_not_new") if getattr(numbers, name) is not None]
    assert found == ([] if why is None else [why])
    if why is not None:
        assert numbers.memory == memory
        assert "ipam.rails is 2, but this node has" in str(getattr(numbers, why))


def test_rails_of_running_pods_decide_whether_a_first_memory_may_be_written() -> None:
    numbers = learn((), (a_card(B),), recorded={B: 1}).numbers

    assert numbers.memory == ()
    assert "running pods have card 0000:0c:00.0 as rail 1, but in PCI order it is rail 0 now" in str(numbers.unsettled)
    assert learn((), (a_card(A), a_card(B)), recorded={B: 1}).numbers.memory == MEMORY
    assert learn(MEMORY, (a_card(B),), recorded={B: 0}).numbers.memory == MEMORY


def test_no_new_card_is_numbered_while_another_card_has_moved() -> None:
    new = Card(PciAddress(0, 0x91, 0, 0), Guid(0x91), IB, eligible=True)

    numbers = learn(MEMORY, (a_card(B), a_card(C, 0xA), new)).numbers

    assert numbers.memory == MEMORY
    assert "has moved" in str(numbers.why_not_new)


def test_news_name_new_and_replaced_cards() -> None:
    assert learn(MEMORY, (a_card(A, 0xF), a_card(B), a_card(C))).news == (
        (
            "rail 0: card 0000:03:00.0 (15b3:1021, GUID 0000:0000:0000:000a) was replaced, and "
            "card 0000:03:00.0 (15b3:1021, GUID 0000:0000:0000:000f) keeps the rail"
        ),
        "rail 2 is card 0000:83:00.0 (15b3:1021, GUID 0000:0000:0000:000c): remembered in /var/lib/railnet/rails.json",
    )
    assert learn(MEMORY, (a_card(A), a_card(B))).news == ()


def test_memory_survives_encoding() -> None:
    memory = (*MEMORY, RememberedRail(C))

    assert parse(encode(memory)) == memory
    assert parse(encode(())) == ()


def a_file(*entries: object, version: object = 1) -> bytes:
    return json.dumps({"version": version, "rails": entries}).encode()


FIRST = {"rail": 0, "address": "0000:03:00.0"}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "JSONDecodeError"),
        (b"\xff", "UnicodeDecodeError"),
        (b"[]", 'no "version"'),
        (b"[" * 100_000, "RecursionError"),
        (b'{"version": 1}', "KeyError"),
        (b'{"version": 1, "rails": {}}', "where a list should be"),
        (a_file(FIRST, version=2), "version 2"),
        (a_file(FIRST, version=True), 'no "version"'),
        (a_file({"rail": 1, "address": "0000:03:00.0"}), "each of them once"),
        (a_file(FIRST, FIRST | {"address": "0000:0c:00.0"}), "each of them once"),
        (a_file(FIRST, FIRST | {"rail": 1}), "two rails have the same address"),
        (
            a_file(
                *({"rail": n, "address": f"0000:0{n}:00.0", "guid": "0:0:0:1".replace("0", "0000")} for n in (0, 1))
            ),
            "not a GUID",
        ),
        (
            a_file(*({"rail": n, "address": f"0000:0{n}:00.0", "guid": "0000:0000:0000:0001"} for n in (0, 1))),
            "two rails have the same guid",
        ),
        (a_file(FIRST | {"guid": "0000:0000:0000:0000"}), "none that a card can have"),
        (a_file(FIRST | {"adress": ""}), "no rail"),
        (a_file(FIRST | {"address": 3}), "TypeError"),
        (a_file(FIRST | {"model": "ConnectX"}), "should be PCI ids"),
        (a_file("0000:03:00.0"), "no rail"),
    ],
)
def test_garbled_memory_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(UnreadableRailMemory, match=says):
        parse(raw)


@pytest.mark.slow
def test_cards_that_come_and_go_never_take_the_rail_of_another_card() -> None:
    """Boot with any cards in any slots, 2,000 times: a card that is served is in its slot, or in the slot of a card that is gone."""
    random = Random(7)  # noqa: S311 - no secrets
    slots = [PciAddress(0, bus, 0, 0) for bus in range(5)]
    memory: RailMemory = ()
    for _ in range(2000):
        guids = random.sample(range(1, 9), 5)
        cards = [
            Card(slot, Guid(guid) if random.random() < 0.9 else None, IB, eligible=random.random() < 0.9)
            for slot, guid in zip(slots, guids, strict=True)
            if random.random() < 0.7
        ]
        before, memory = memory, learn(memory, cards).numbers.memory
        owner = {one.guid: one.address for one in before if one.guid is not None}
        here = {card.address: card for card in cards}
        assert [one.address for one in memory[: len(before)]] == [one.address for one in before]
        assert parse(encode(memory)) == memory
        for one in place(RailNumbers(memory), cards).rails:
            if one.reason is None:
                assert owner.get(here[one.address].guid, one.address) == one.address


def test_reason_of_a_missing_card_says_how_its_rail_is_given_up() -> None:
    seen, never = (place(RailNumbers((one,)), ()).rails[0].reason for one in (MEMORY[0], RememberedRail(A)))

    forget = "end the pods with a rail on this node, delete /var/lib/railnet/rails.json, then restart the daemon"
    assert "card 0000:03:00.0 (15b3:1021, GUID 0000:0000:0000:000a) is not on PCI" in str(seen)
    assert "no card was ever seen at 0000:03:00.0, which `provision` named at the first start" in str(never)
    assert [forget in str(reason) for reason in (seen, never)] == [True, True]
