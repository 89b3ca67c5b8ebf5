"""What one node reports of its cards, as `railnet plan` needs it; parsed strictly, because a node may send anything. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import LinkType

_MOST_CARDS = 512  # a node of 16 cards with 16 lone VFs each has 256
_LONGEST_TEXT = 300
_MOST_VFS = 65535  # NumVFs has 16 bits (SR-IOV 1.1, 3.3.7)
_NAME, _LONGEST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"), 253  # RFC 1123, as Kubernetes' names of nodes
_MODEL = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_RATE = re.compile(r"[0-9]{1,5}(\.[0-9])?")
_PKEY = re.compile(r"0x[0-9a-f]{4}")
_LEAF = re.compile(r"([0-9a-f]{16})/[0-9]{1,3}")
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,40}")
_LINK_TYPES: Mapping[str, LinkType] = {"infiniband": "infiniband", "ether": "ether"}
_MOST_PKEYS = 1024


@dataclass(frozen=True, slots=True)
class SeenCard:
    """A PF, or a VF without a PF, as its node reports it.

    Attributes:
        model: PCI ids such as `15b3:1021`; empty if the node does not know them.
        link_type: None if the node does not report it.
        rail: the number of its rail; None if it has none.
        lone: it is a VF without a PF, as in a virtual machine.
        totalvfs: how many VFs its firmware offers; None if the node does not report it.
        numvfs: how many VFs it has.
        active: whether its port is ACTIVE.
        rate: of its port in Gb/s, such as `400`; None unless the port is ACTIVE.
        leaf: the node GUID of its leaf switch; None if it is not known.
        pkeys: the partition keys of its port; None if they are not known.
        trouble: why it gives no VFs; empty if it does.
    """

    address: PciAddress
    model: str = ""
    link_type: LinkType | None = None
    numa_node: int | None = None
    rail: int | None = None
    lone: bool = False
    totalvfs: int | None = None
    numvfs: int = 0
    active: bool = False
    rate: str | None = None
    leaf: str | None = None
    pkeys: frozenset[int] | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node that was asked.

    Attributes:
        gpus: how many it offers to pods; None if no Node object says it.
        cards: in PCI order.
        rails: the addresses of its rails by number, also of those whose card is not there.
        version: of its Railnet.
        complete: whether it reports models, link types and VFs; Railnet 0.5.1 and older do not.
        group: the group of nodes that its pod is of; empty if of none.
        named: whether its configuration names its rails by a list: then it does not report which rails it remembers.
        link_types: those that its pools ask for, so those of its rails.
    """

    name: str
    labels: Mapping[str, str]
    gpus: int | None
    cards: tuple[SeenCard, ...]
    rails: tuple[PciAddress, ...]
    version: str = ""
    complete: bool = True
    group: str = ""
    named: bool = False
    link_types: frozenset[LinkType] = frozenset(("infiniband",))

    @property
    def absent(self) -> tuple[PciAddress, ...]:
        """Return the addresses of rails whose card the node does not show."""
        present = {card.address for card in self.cards}
        return tuple(address for address in self.rails if address not in present)


class UnseenNode(NamedTuple):
    """A node that reports nothing, and why."""

    name: str
    why: str
    labels: Mapping[str, str] = {}


class KnownNode(NamedTuple):
    """What the API server knows of a node; `gpus` and `group` are as `SeenNode`'s."""

    name: str
    labels: Mapping[str, str]
    gpus: int | None = None
    group: str = ""


def node_of(identity: KnownNode, report: object) -> SeenNode:
    """Return what a report of `railnet status -o json` says.

    Raises:
        ValueError: it is no report, or has what no node has; the message names the key.
    """
    if not isinstance(report, dict):
        raise ValueError("its answer is no report of railnet status")  # noqa: TRY004 - as below
    if len(identity.name) > _LONGEST_NAME or _NAME.fullmatch(identity.name) is None:
        raise ValueError(f"{identity.name!r:.80} is no name of a node")
    listed = _list(report, "rails")
    rails = _rails(listed)
    complete = "pfs" in report
    if complete:
        cards = [_pf(entry, f"pfs[{at}]") for at, entry in enumerate(_list(report, "pfs"))]
        cards += [_lone(entry, f"loneVfs[{at}]") for at, entry in enumerate(_list(report, "loneVfs"))]
    else:
        cards = [_older(entry, f"rails[{at}]") for at, entry in enumerate(listed) if _shows_a_card(entry)]
    if len({card.address for card in cards}) != len(cards):
        raise ValueError("two of its cards have the same address")
    leaves = _leaves(listed)
    cards = [replace(card, leaf=leaves.get(card.address)) for card in cards]
    version = report.get("version")
    return SeenNode(
        identity.name,
        identity.labels,
        identity.gpus,
        tuple(sorted(cards, key=lambda card: card.address)),
        rails,
        version if isinstance(version, str) and _VERSION.fullmatch(version) else "",
        complete,
        identity.group,
    )


def _rails(entries: Sequence[Any]) -> tuple[PciAddress, ...]:
    by_number: dict[int, PciAddress] = {}
    for at, entry in enumerate(entries):
        number = _number(entry, "rail", f"rails[{at}]", _MOST_CARDS)
        if number is not None:
            by_number[number] = _address(entry, f"rails[{at}]")
    if sorted(by_number) != list(range(len(by_number))):
        raise ValueError("its rails are not numbered 0, 1, 2, …")
    return tuple(by_number[number] for number in range(len(by_number)))


def _leaves(entries: Sequence[Any]) -> dict[PciAddress, str]:
    """Return the leaf switches of cards, which only nodes with topology labels report."""
    leaves = {}
    for at, entry in enumerate(entries):
        leaf = _text(entry, "leaf", f"rails[{at}]", _LEAF)
        if leaf is not None:
            leaves[_address(entry, f"rails[{at}]")] = leaf.partition("/")[0]
    return leaves


def _pf(entry: Any, path: str) -> SeenCard:
    totalvfs = _number(entry, "totalvfs", path, _MOST_VFS)
    numvfs = _number(entry, "numvfs", path, _MOST_VFS) or 0
    active = _active(entry)
    rate, pkeys = _text(entry, "rate", path, _RATE), entry.get("pkeys")
    return replace(
        _function(entry, path),
        totalvfs=totalvfs,
        numvfs=numvfs,
        active=active,
        rate=rate if active else None,
        pkeys=None if pkeys is None else frozenset(_pkeys(pkeys, f"{path}.pkeys")),
        trouble=_trouble(entry, totalvfs),
    )


def _trouble(entry: Any, totalvfs: int | None) -> str:
    fault = entry.get("fault")
    if isinstance(fault, str) and fault:
        return fault[:_LONGEST_TEXT]
    if totalvfs == 0:
        return "its firmware offers no VFs: SR-IOV is off (mlxconfig: SRIOV_EN, NUM_OF_VFS)"
    return "" if entry.get("driver") else "no driver is bound to it"


def _lone(entry: Any, path: str) -> SeenCard:
    return replace(_function(entry, path), lone=True)


def _function(entry: Any, path: str) -> SeenCard:
    """Return what a report says of a PF and of a VF without a PF alike."""
    return SeenCard(
        _address(entry, path),
        _model(entry),
        _link_type(entry, path),
        _number(entry, "numaNode", path, _MOST_VFS, least=-1),
        _number(entry, "rail", path, _MOST_CARDS),
    )


def _older(entry: Any, path: str) -> SeenCard:
    """Return a card of which an older daemon reports that it is a rail."""
    active = _active(entry)
    rate = _text(entry, "rate", path, _RATE)
    return SeenCard(
        _address(entry, path),
        rail=_number(entry, "rail", path, _MOST_CARDS),
        numvfs=_number(entry, "vfs", path, _MOST_VFS) or 0,
        active=active,
        rate=rate if active else None,
    )


def _shows_a_card(entry: Any) -> bool:
    """Return whether an older daemon's rail has its card."""
    return any(entry.get(key) for key in ("netdev", "rdma", "port", "vfs", "fault"))


def _active(entry: Any) -> bool:
    """Return whether a port carries data: `4: ACTIVE` of RDMA, or `UP` of a PF without RDMA."""
    port = entry.get("port")
    return isinstance(port, str) and (port.endswith("ACTIVE") or port == "UP")


def _model(entry: Any) -> str:
    model = entry.get("model")
    return model if isinstance(model, str) and _MODEL.fullmatch(model) else ""


def _link_type(entry: Any, path: str) -> LinkType:
    name = entry.get("linkType")
    if not isinstance(name, str) or name not in _LINK_TYPES:
        raise ValueError(f"{path}.linkType is {name!r:.40}, and no link type")
    return _LINK_TYPES[name]


def _pkeys(keys: Any, path: str) -> Iterator[int]:
    if not isinstance(keys, list) or len(keys) > _MOST_PKEYS:
        raise ValueError(f"{path} is no list of at most {_MOST_PKEYS} partition keys")
    for key in keys:
        if not isinstance(key, str) or _PKEY.fullmatch(key) is None:
            raise ValueError(f"{path} has {key!r:.40}, which is no partition key")
        yield int(key, 16)


def _list(report: Mapping[str, Any], key: str) -> Sequence[Any]:
    entries = report.get(key)
    if not isinstance(entries, list) or len(entries) > _MOST_CARDS:
        raise ValueError(f"{key} is no list of at most {_MOST_CARDS} entries")
    if not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{key} has an entry that is no mapping")
    return entries


def _address(entry: Any, path: str) -> PciAddress:
    address = entry.get("address")
    if not isinstance(address, str):
        raise ValueError(f"{path} has no address")  # noqa: TRY004 - a bad answer is one kind of error
    return PciAddress.parse(address)


def _number(entry: Any, key: str, path: str, most: int, *, least: int = 0) -> int | None:
    number = entry.get(key)
    if number is not None and (type(number) is not int or not least <= number <= most):
        raise ValueError(f"{path}.{key} is {number!r:.40}, and no number from {least} to {most}")
    return number


def _text(entry: Any, key: str, path: str, form: re.Pattern[str]) -> str | None:
    text = entry.get(key)
    if text is not None and (not isinstance(text, str) or form.fullmatch(text) is None):
        raise ValueError(f"{path}.{key} is {text!r:.40}, which has another form than a node's {key}")
    return text
