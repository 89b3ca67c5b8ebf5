"""Readers of the values in the node's configuration file: a function for each shape, a constant for each kind of single value.

A reader is called with a value of the YAML document and with the path of that value. The reader returns the converted value, or
raises `Fault` with the path, the value, and what the value should be. A reader of a list or of a mapping reads all entries first,
and raises all of their faults. Not here: which key has which reader (`railnet.configuration`).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from cni.host.netconf import MAX_SECONDS
from railnet.errors import Misconfigured
from railnet.vf.address_slice import IpNetwork
from railnet.vf.pci_address import PciAddress

_Value = TypeVar("_Value")
_Other = TypeVar("_Other")
Reader = Callable[[Any, str], _Value]

_ABSOLUTE_PATH = re.compile(r"/[^\0]*")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_BYTES = re.compile(r"([1-9][0-9]{0,15})(Ki|Mi|Gi|Ti)?")
_UNITS = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
UNLIMITED = (1 << 64) - 1
"""The greatest resource limit: RLIM_INFINITY (include/uapi/asm-generic/resource.h)."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123; host-local makes a folder of a network's name
_PKEY = re.compile(r"0x(?![08]000)[0-9a-fA-F]{4}")  # 0x8000 is 0x0000 with the bit of a full member
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MOST_FAULTS = 100  # a document of a mebibyte could have a hundred thousand
_LONGEST_KEY = 80  # of a key that is compared with the known ones
_UPPER_CASE = re.compile("[A-Z]")


class Fault(Misconfigured):
    """One fault of a document; `path` is the path of the value that is wrong, missing or unknown."""

    def __init__(self, path: str, message: str) -> None:
        """Take the path and the whole message."""
        super().__init__(message)
        self.path = path


class Faults(Misconfigured):
    """Several faults of a document: the first hundred. The message is that of the first one."""

    def __init__(self, faults: Iterable[Misconfigured]) -> None:
        """Take the faults, in the order of the document; at least one."""
        self.faults = tuple(islice(faults, _MOST_FAULTS))
        super().__init__(str(self.faults[0]))


def faults_of(error: Misconfigured) -> tuple[Misconfigured, ...]:
    """Return the faults that an error stands for: several, or the error itself."""
    return error.faults if isinstance(error, Faults) else (error,)


def all_of(reads: Iterable[Callable[[], _Value]]) -> list[_Value]:
    """Call all reads, and return their values.

    Raises:
        Misconfigured: the fault of the one read that failed. Faults: those of all reads that failed.
    """
    values, faults = _values_and_faults(reads)
    raise_any(faults)
    return values


def _values_and_faults(reads: Iterable[Callable[[], _Value]]) -> tuple[list[_Value], list[Misconfigured]]:
    values: list[_Value] = []
    faults: list[Misconfigured] = []
    for read in reads:
        try:
            values.append(read())
        except Misconfigured as error:
            faults += faults_of(error)
            if len(faults) >= _MOST_FAULTS:
                break
    return values, faults


def raise_any(faults: Iterable[Misconfigured]) -> None:
    """Raise the faults, if there are any: the first hundred.

    Raises:
        Misconfigured: the only fault. Faults: several.
    """
    listed = tuple(islice(faults, _MOST_FAULTS))  # an iterator may have very many
    if listed:
        raise listed[0] if len(listed) == 1 else Faults(listed)


@dataclass(frozen=True, slots=True)
class Scalar(Generic[_Value]):
    """A reader of a single value.

    Attributes:
        should_be: the words that follow "it should be" in the message about a wrong value.
        convert: returns the converted value, or raises ValueError for a wrong value.
    """

    should_be: str
    convert: Callable[[Any], _Value]

    def __call__(self, value: Any, path: str) -> _Value:
        """Return the converted value."""
        try:
            return self.convert(value)
        except ValueError:
            raise wrong(value, path, self.should_be) from None


def exactly(word: str) -> Scalar[str]:
    """Return a reader for a key with only one possible value."""
    return Scalar(f"{word} (this version of Railnet knows no other value)", lambda value: _one_of((word,), value))


def one_of(words: tuple[_Value, ...]) -> Scalar[_Value]:
    """Return a reader that accepts some words."""
    return Scalar(f"one of {', '.join(map(str, words))}", lambda value: _one_of(words, value))


def word_or(word: str, meaning: _Value, other: Reader[_Other]) -> Reader[_Value | _Other]:
    """Return a reader that knows the meaning of one word and lets another reader read everything else."""
    return lambda value, path: meaning if value == word else other(value, path)


def list_of(item: Reader[_Value], should_be: str = "a list") -> Reader[tuple[_Value, ...]]:
    """Return a reader of a list."""

    def read(value: Any, path: str) -> tuple[_Value, ...]:
        if not isinstance(value, list):
            raise wrong(value, path, should_be)
        return tuple(all_of(partial(item, entry, f"{path}[{position}]") for position, entry in enumerate(value)))

    return read


def by_name(name: Scalar[str], item: Reader[_Value]) -> Reader[dict[str, _Value]]:
    """Return a reader of a mapping whose keys are names that the author of the file chooses."""

    def read(value: Any, path: str) -> dict[str, _Value]:
        if not isinstance(value, dict):
            raise wrong(value, path, f"a mapping in which each key is {name.should_be}")
        return dict(all_of(partial(read_entry, key, entry, path) for key, entry in value.items()))

    def read_entry(key: Any, entry: Any, path: str) -> tuple[str, _Value]:
        try:
            known = name(key, f"a key of {path}")
        except Misconfigured as error:
            raise Fault(within(path, key), str(error)) from None
        return known, item(entry, f"{path}.{key}")

    return read


def an_object(
    make: Callable[..., _Value],
    fields: Mapping[str, Reader[Any]],
    required: Mapping[str, Scalar[Any]] | None = None,
    fixed: Mapping[str, str] | None = None,
) -> Reader[_Value]:
    """Return a reader of a mapping with known keys.

    Args:
        make: makes the result of the values that the document has; the key `pfDevice` is the argument `pf_device`.
        fields: keys that may be missing.
        required: keys that may not be missing.
        fixed: keys with only one possible value; they may be missing, and `make` is not called with them.
    """
    required, fixed = required or {}, fixed or {}
    readers: dict[str, Reader[Any]] = {**{key: exactly(word) for key, word in fixed.items()}, **required, **fields}

    def read(value: Any, path: str) -> _Value:
        if not isinstance(value, dict):
            raise wrong(value, path or "the document", "a mapping")
        faults: list[Misconfigured] = [_unknown(key, path, readers) for key in value if key not in readers]
        faults += [_missing(key, path, reader) for key, reader in required.items() if key not in value]
        known = [key for key in value if key in readers]
        read_values, more = _values_and_faults(partial(readers[key], value[key], within(path, key)) for key in known)
        raise_any(faults + more)
        values = dict(zip(known, read_values, strict=True))
        return make(**{_argument(key): entry for key, entry in values.items() if key not in fixed})

    return read


def _unknown(key: Any, path: str, readers: Mapping[str, Reader[Any]]) -> Fault:
    from difflib import get_close_matches  # noqa: PLC0415 - only a wrong file needs it, and a daemon has none

    by_lower_case = {name.lower(): name for name in readers}
    nearest = get_close_matches(str(key).lower()[:_LONGEST_KEY], by_lower_case, n=1)
    hint = f"; did you mean {by_lower_case[nearest[0]]}?" if nearest else ""
    where = within(path, key)
    return Fault(where, f"{where} is an unknown key; known here: {', '.join(readers)}{hint}")


def _missing(key: str, path: str, reader: Scalar[Any]) -> Fault:
    where = within(path, key)
    return Fault(where, f"{where} is missing; it should be {reader.should_be}")


def wrong(value: Any, path: str, should_be: str) -> Fault:
    """Return the error for a value that should be something else."""
    return Fault(path, f"{path} is {shown(value)}; it should be {should_be}")


def shown(value: Any) -> str:
    """Return a value as messages show it: at most 60 characters; null, true and false as in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        return f"{value!r:.60}"
    except ValueError:  # Python prints no number of more than 4300 digits
        return "a number that is too long to print"


def within(path: str, key: Any) -> str:
    """Return the path of the value that a mapping at `path` has under a key; at most 80 characters of the key."""
    name = key if isinstance(key, str) and key.isprintable() else shown(key)
    return f"{path}.{name:.80}" if path else f"{name:.80}"


def _argument(key: str) -> str:
    return _UPPER_CASE.sub(lambda letter: f"_{letter[0].lower()}", key)


def _one_of(words: tuple[_Value, ...], value: Any) -> _Value:
    return words[words.index(value)]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("no text")
    return value


def _matching(pattern: re.Pattern[str], value: Any) -> re.Match[str]:
    match = pattern.fullmatch(_text(value))
    if match is None:
        raise ValueError("text of another form")
    return match


def _positive(value: Any) -> int:
    if type(value) is not int or value <= 0:
        raise ValueError("not a number above 0")
    return value


def _in_range(numbers: range, value: Any) -> int:
    if type(value) is not int or value not in numbers:
        raise ValueError("no such number")
    return value


def _boolean(value: Any) -> bool:
    if value is not True and value is not False:
        raise ValueError("neither true nor false")
    return bool(value)


def _seconds(value: Any) -> float:
    match = _matching(_DURATION, value)
    seconds = float(match[1]) * _SECONDS[match[2]]
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError("no time at all, or too long")
    return seconds


def _bytes(value: Any) -> int:
    match = _matching(_BYTES, str(value) if type(value) is int else value)
    number = int(match[1]) * _UNITS[match[2]]
    if number >= UNLIMITED:
        raise ValueError("no resource limit")
    return number


def _pkey(value: Any) -> int:
    text = f"0x{value:04x}" if type(value) is int else value  # YAML reads 0xffff as a number
    return int(_matching(_PKEY, text)[0], 16)


TEXT = Scalar("a string (quote a number)", _text)
BOOLEAN = Scalar("true or false", _boolean)
POSITIVE = Scalar("a whole number above 0", _positive)
MTU = word_or("pf", "pf", Scalar("pf, or a whole number above 0", _positive))
SECONDS = Scalar("a duration like 500ms, 5s or 2m, at most 60m", _seconds)
BYTES = Scalar("runtime, unlimited, or a number of bytes such as 64Gi", _bytes)
ABSOLUTE_PATH = Scalar("an absolute path", lambda value: Path(_matching(_ABSOLUTE_PATH, value)[0]))
RESOURCE = Scalar("the name of an extended resource, such as rdma/ib_vf", lambda value: _matching(_RESOURCE, value)[0])
NETWORK_NAME = Scalar(
    "the name of a network (lower-case letters, digits and hyphens, at most 63)",
    lambda value: _matching(_LABEL, value)[0],
)
NAMESPACE_NAME = Scalar(
    "the name of a namespace, or '*' for every namespace without an entry",
    lambda value: value if value == "*" else _matching(_LABEL, value)[0],
)
PRIORITY_CLASS = Scalar(
    "the name of a PriorityClass (lower-case letters, digits, hyphens and dots, at most 253)",
    lambda value: _matching(_SUBDOMAIN, value)[0],
)
PCI_ADDRESS = Scalar('a PCI address in quotes, such as "0000:03:00.0"', lambda value: PciAddress.parse(_text(value)))
_PCI_FUNCTIONS, _NUMA_NODES = range(8), range(-1, 1024)  # PCI Code and ID: 3 bits; CONFIG_NODES_SHIFT is 10 at most
PCI_FUNCTION = Scalar(
    "the function number of a PCI address, from 0 to 7: 1 is the second port of a card",
    lambda value: _in_range(_PCI_FUNCTIONS, value),
)
NUMA_NODE = Scalar("a NUMA node, a whole number from -1 (none) to 1023", lambda value: _in_range(_NUMA_NODES, value))
PKEY = Scalar('a PKey from "0x0001" to "0xffff", but not "0x8000"', _pkey)
IP_NETWORK: Scalar[IpNetwork] = Scalar(
    "a network whose host bits are 0, such as 10.56.0.0/16", lambda value: ip_network(_text(value))
)
