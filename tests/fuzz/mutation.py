"""Mutation of the corpus: inputs that are nearly valid. The same random generator yields the same inputs.

An input is bytes. If a parser takes several values, they are parts of one input with `SEPARATOR` between them, so that
people can read a corpus. A part that is JSON is mostly changed as a tree, since a change of one byte mostly makes it
invalid JSON. For the same reason, netlink attributes are changed as pairs of type and value.
"""

import json
import re
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

SEPARATOR = b"\n%%\n"
LARGE_BYTES = 200_000  # near the limit of an executable's stdin, and enough to make quadratic time visible
_RARE = 0.002  # how often an input is large or deep: such an input takes a thousand times as long

_TOKENS: tuple[bytes, ...] = (
    *(b"\0", b"\n", b"\r\n", b" ", b"\t", b"=", b";", b",", b":", b"/", b"..", b"%", b"\\", b'"', b"'", b"[", b"]", b"{", b"}"),
    *(b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"\xd9\xa3", b"\xe2\x80\xae", b"\xc2\xa0"),
    *(b"0", b"-1", b"1e999", b"NaN", b"-Infinity", b"0x", b"0x10", b"1_0", b"9" * 20, b"9" * 5000, b"0.0.0.0/0", b"::/0"),
    *(b"10.56.0.1/16", b"::ffff:10.56.0.1/112", b"fe80::1%eth0/64", b"../../etc/passwd", b"null", b"true", b"[]", b"{}"),
    *(b"&a ", b"*a", b"<<: ", b"!!bool ", b"!!int ", b"!!float ", b"!!timestamp ", b"!!binary ", b"!!python/object:os.system ", b"- "),
    SEPARATOR,
)  # fmt: skip
_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 127, 128, 255, 256, 4095, 32767, 32768, 65535, 65536, 0x7FFFFFFF)
_NUMBERS += (0x80000000, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 1 << 31, 1 << 64, -(1 << 70), 10**400, float("nan"), float("inf"), 1e-320),
    *("", "x", "\0", "\ud800", "\U0001f600", "\xe9", "a\nb", " a ", "../..", "/", "x" * 300, "٣", "0", "1:2", "*", "default"),
    *([], {}, [None], [[]], [{}], {"": None}, ["x"], {"x": "y"}, [0, "x"], "10.56.0.1/16", "0000:03:00.1", "::1/128"),
)  # fmt: skip


class Object(list[tuple[str, Any]]):
    """A JSON object as a list of pairs, so that a key may occur twice."""


class Mutator:
    """A source of inputs. Mostly, `mend` repairs a value that would stop the parser early, such as a checksum."""

    def __init__(
        self,
        random: Random,
        corpus: Sequence[bytes],
        mend: Callable[[bytes], bytes] | None = None,
        largest: int = LARGE_BYTES,
    ) -> None:
        """Mutate inputs of `corpus`, which must not be empty. `largest` is the limit of a repetition in bytes."""
        self._random, self._corpus, self._mend, self._largest = random, corpus, mend, largest
        words = {word for one in corpus for word in re.findall(rb"[A-Za-z0-9_./:-]{2,40}", one[:4000])}
        self._tokens = _TOKENS + tuple(sorted(words))
        self._trees: dict[bytes, Any] = {}

    def next(self) -> bytes:
        """Return another input."""
        random = self._random
        if random.random() < _RARE:
            return self._large()
        data = random.choice(self._corpus)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            data = self._changed(data)
        return self._mend(data) if self._mend is not None and random.random() < 0.9 else data

    def _changed(self, data: bytes) -> bytes:
        random = self._random
        parts = data.split(SEPARATOR)
        if len(parts) > 1 and random.random() < 0.1:
            return self._other_parts(parts)
        place = random.randrange(len(parts))
        parts[place] = self._changed_part(parts[place])
        return SEPARATOR.join(parts)

    def _other_parts(self, parts: list[bytes]) -> bytes:
        random = self._random
        other = random.choice(self._corpus).split(SEPARATOR)
        match random.randrange(4):
            case 0:
                del parts[random.randrange(len(parts))]
            case 1:
                parts.insert(random.randrange(len(parts)), random.choice(other))
            case 2:
                parts[random.randrange(len(parts))] = random.choice(other)
            case _:
                parts.append(random.choice(parts))
        return SEPARATOR.join(parts)

    def _changed_part(self, part: bytes) -> bytes:
        random = self._random
        if random.random() < 0.7 and (tree := self._tree(part)) is not None:
            return json_of(self._changed_tree(tree))
        if random.random() < 0.5 and is_attributes(part):
            return self._changed_attributes(part)
        return self._changed_bytes(part)

    def _tree(self, part: bytes) -> Any:
        """Return a part as parsed JSON; None if it is not JSON."""
        if part[:1] not in (b"{", b"["):
            return None
        if part not in self._trees:
            try:
                self._trees[part] = json.loads(part, object_pairs_hook=Object)
            except (ValueError, RecursionError):
                self._trees[part] = None
            if len(self._trees) > 2000:
                self._trees.clear()
                return None
        return self._trees[part]

    def _changed_tree(self, tree: Any) -> Any:
        """Copy a tree with one change. On the way down, each node may be the changed one, with some probability."""
        random = self._random
        if not isinstance(tree, list) or not tree or random.random() < 0.12:
            return self._changed_leaf(tree)
        place = random.randrange(len(tree))
        copy = type(tree)(tree)
        if isinstance(tree, Object):
            key, value = tree[place]
            copy[place] = (key, self._changed_tree(value))
        else:
            copy[place] = self._changed_tree(tree[place])
        return copy

    def _changed_leaf(self, value: Any) -> Any:
        random = self._random
        if isinstance(value, list) and value and random.random() < 0.6:
            return self._changed_list(value)
        if isinstance(value, str) and random.random() < 0.5:
            return self._changed_bytes(value.encode(errors="surrogatepass")).decode("utf-8", "surrogateescape")
        if type(value) is int and random.random() < 0.4:
            return value + random.choice((-1, 1, 256, -256))
        if random.random() < 0.1:
            return random.choice(([value], [value, value], Object([("x", value)])))
        found = random.choice(_VALUES)
        return Object(found.items()) if isinstance(found, dict) else found

    def _changed_list(self, value: list[Any]) -> list[Any]:
        random = self._random
        copy = type(value)(value)
        place, other = random.randrange(len(copy)), random.randrange(len(copy))
        match random.randrange(5):
            case 0:
                del copy[place]
            case 1:
                copy.append(copy[place])  # in an object, the key then occurs twice
            case 2:
                copy[place], copy[other] = copy[other], copy[place]
            case 3 if isinstance(copy, Object):
                copy[place] = (copy[place][0], copy[other][1])
            case 4 if isinstance(copy, Object):
                copy[place] = (random.choice(self._tokens).decode(errors="replace"), copy[place][1])
            case _:
                copy *= random.choice((2, 3, 20))
        return copy

    def _changed_attributes(self, part: bytes) -> bytes:
        """Change one netlink attribute. Its length and padding stay valid."""
        random = self._random
        head, pairs = attributes_of(part)
        place = random.randrange(len(pairs))
        kind, value = pairs[place]
        match random.randrange(6):
            case 0:
                del pairs[place]
            case 1:
                pairs.insert(place, pairs[random.randrange(len(pairs))])
            case 2:
                pairs[place] = (random.choice((0, kind ^ 1, kind | 0x8000, random.randrange(80))), value)
            case 3:
                pairs[place] = (kind, value[: random.randrange(len(value) + 1)])
            case 4:
                pairs[place] = (kind, value + self._changed_bytes(value))
            case _:
                pairs[place] = (kind, self._changed_bytes(value))
        return head + b"".join(encoded_attribute(*pair) for pair in pairs)

    def _changed_bytes(self, data: bytes) -> bytes:  # noqa: C901, PLR0911, PLR0912 - a table of cases
        random = self._random
        place = random.randrange(len(data) + 1)
        until = min(len(data), place + random.choice((1, 1, 2, 4, 8, 40)))
        match random.randrange(11):
            case 0:
                return data[:place] + bytes((random.randrange(256),)) + data[place + 1 :]
            case 1 if place < len(data):
                return data[:place] + bytes((data[place] ^ 1 << random.randrange(8),)) + data[place + 1 :]
            case 2:
                return data[:place]
            case 3:
                return data[:place] + data[until:]
            case 4:
                return data[:until] + data[place:]
            case 5:
                other = random.choice(self._corpus)
                return data[:place] + other[random.randrange(len(other) + 1) :][:1000]
            case 6:
                size, order = random.choice((1, 2, 4, 8)), random.choice((">", "<"))
                number = random.choice(_NUMBERS) & ((1 << 8 * size) - 1)
                at = place - place % size
                packed = struct.pack(f"{order}{ {1: 'B', 2: 'H', 4: 'I', 8: 'Q'}[size] }", number)
                return data[:at] + packed + data[at + size :]
            case 7:
                lines = data.split(b"\n")
                lines.insert(random.randrange(len(lines)), random.choice(lines))
                return b"\n".join(lines)
            case 8:
                lines = data.split(b"\n")
                del lines[random.randrange(len(lines))]
                return b"\n".join(lines)
            case 9:
                return data[:place] + random.choice(self._tokens) + data[until:]
            case _:
                return data[:place] + random.choice(self._tokens) + data[place:]

    def _large(self) -> bytes:
        """Return an input that is long by repetition, or deeply nested."""
        random = self._random
        parts = random.choice(self._corpus).split(SEPARATOR)
        place = random.randrange(len(parts))
        part = parts[place]
        begin = random.randrange(len(part) + 1)
        end = min(len(part), begin + random.choice((1, 2, 8, 40, 400)))
        piece = random.choice((part[begin:end], random.choice(self._tokens), b'{"a":', b"[", b"- ")) or b"x"
        piece *= random.choice((1000, self._largest)) // len(piece) + 1
        parts[place] = part[:begin] + piece[: self._largest] + part[end:]
        return SEPARATOR.join(parts)


def json_of(tree: Any) -> bytes:
    """Write a tree as JSON. Keys may repeat, and NaN is written in the form that Python's JSON readers accept."""
    pieces: list[str] = []
    _dump(tree, pieces)
    return "".join(pieces).encode(errors="surrogatepass")


def _dump(tree: Any, pieces: list[str]) -> None:
    if isinstance(tree, Object):
        pieces.append("{")
        for number, (key, value) in enumerate(tree):
            pieces.append((", " if number else "") + json.dumps(key) + ": ")
            _dump(value, pieces)
        pieces.append("}")
    elif isinstance(tree, list):
        pieces.append("[")
        for number, value in enumerate(tree):
            if number:
                pieces.append(", ")
            _dump(value, pieces)
        pieces.append("]")
    else:
        pieces.append(json.dumps(tree))


# bytes before the attributes: struct ifinfomsg, struct ifaddrmsg, and none in RDMA netlink
_HEADS = (16, 8, 0)


def is_attributes(part: bytes) -> bool:
    """Return whether a part is a netlink payload: a head, then attributes up to the last byte."""
    return b"\0" in part and bool(attributes_of(part)[1])


def attributes_of(part: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Split a netlink payload into head and attributes. There are no attributes if it is not a netlink payload."""
    for size in _HEADS:
        pairs, place = [], size
        while place + 4 <= len(part):
            length, kind = struct.unpack_from("=HH", part, place)
            if length < 4 or place + length > len(part):
                break
            pairs.append((kind, part[place + 4 : place + length]))
            place += length + -length % 4
        else:
            if pairs and place >= len(part):
                return part[:size], pairs
    return part, []


def encoded_attribute(kind: int, value: bytes) -> bytes:
    """Encode one attribute with padding. A value that is too long for the length field is cut."""
    value = value[:65000]
    return struct.pack("=HH", len(value) + 4, kind & 0xFFFF) + value + b"\0" * (-len(value) % 4)
