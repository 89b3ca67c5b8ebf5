"""A YAML text with the line of each value, and all that `railnet.strict_yaml` refuses in it, not only the first. Pure.

Not here: what the values should be (`railnet.configuration`).
"""

import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import yaml

from railnet import strict_yaml
from railnet.config_check.remark import Remark
from railnet.errors import Misconfigured
from railnet.value_readers import within

_PREFIX = "tag:yaml.org,2002:"
_PLAIN_CONTAINERS = (f"{_PREFIX}map", f"{_PREFIX}seq")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_MOST_REMARKS = 100
# What PyYAML's SafeConstructor raises for a scalar that does not fit its tag, as `railnet.strict_yaml` has it.
_NO_VALUE = (yaml.YAMLError, ValueError, AttributeError, LookupError, ArithmeticError, TypeError)


class YamlPlace(NamedTuple):
    """Where a value stands: the node of its key, or of the entry of a list; and the value's own node."""

    key: yaml.Node
    value: yaml.Node

    @property
    def line(self) -> int:
        """Return the line, counted from 1."""
        line: int = self.key.start_mark.line + 1
        return line


class YamlDocument:
    """A text that was read as YAML.

    Attributes:
        value: what the document holds. Where YAML itself is broken it is what is left; {} if nothing is.
        has_value: whether `value` says anything about the file.
        remarks: what is wrong with the YAML, a hundred at most.
    """

    def __init__(self, text: str) -> None:
        """Read a text; nothing is raised for a wrong one.

        Raises:
            RecursionError: it is nested too deeply.
        """
        self._root: yaml.Node | None = None
        self._broken: set[int] = set()  # ids of nodes, which `_root` keeps
        self._entries: dict[int, dict[str, YamlPlace]] = {}  # by the same ids
        self.remarks: list[Remark] = []
        self.value: Any = {}
        self.has_value = True
        try:
            self.value = strict_yaml.read(text)
        except Misconfigured as error:
            if len(text) <= strict_yaml.MOST_CHARACTERS:
                self._read_what_is_left(text, str(error))
            if not self.remarks:  # the text is too long, or PyYAML refuses what this class does not look at
                self.remarks.append(Remark("error", None, "", str(error)))
                self.has_value = False
        else:
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
            self._note_numbers()

    def place(self, path: str) -> YamlPlace | None:
        """Return where the value at a path stands, else where the nearest value around it does; None if there is none."""
        return self._look_up(path)[0]

    def has(self, path: str) -> bool:
        """Return whether the document has a value at a path."""
        return self._look_up(path)[1] == path

    def _look_up(self, path: str) -> tuple[YamlPlace | None, str]:
        """Return the nearest place that leads to a path, and the path of that place. Of a key that is there twice, the last counts."""
        node, at, place = self._root, 0, None
        while node is not None and at < len(path):
            entries = self._entries_of(node)
            ends = [end for end in _ends(path, at) if path[at:end] in entries]
            if not ends:
                break
            place, at = entries[path[at : ends[-1]]], ends[-1]
            node = place.value
            at += path[at : at + 1] == "."
        return place, path[:at]

    def _entries_of(self, node: yaml.Node) -> dict[str, YamlPlace]:
        """Return the places of a mapping's or a list's entries, by the part of a path that leads to each."""
        known = self._entries.get(id(node))
        if known is None:
            known = self._entries[id(node)] = dict(_entries(node))
        return known

    def is_broken(self, place: YamlPlace | None) -> bool:
        """Return whether YAML could not read a value, so that it says nothing about the value."""
        return place is not None and id(place.value) in self._broken

    def _read_what_is_left(self, text: str, why: str) -> None:
        try:
            loader = _AliasNotingLoader(text)
            self._root = loader.get_single_node()
        except _NO_VALUE as error:
            mark = getattr(error, "problem_mark", None)
            self.remarks.append(Remark("error", None if mark is None else mark.line + 1, "", why))
            self.has_value = False
            return
        for node, message in loader.aliases:
            self._remark(node, "", message)
        value = {} if self._root is None else self._value(self._root, "", loader)
        self.value = {} if value is None else value
        self._note_numbers()

    def _remark(self, node: yaml.Node, key: str, message: str) -> None:
        self._broken.add(id(node))
        if len(self.remarks) < _MOST_REMARKS:
            self.remarks.append(Remark("error", node.start_mark.line + 1, key, message))

    def _value(self, node: yaml.Node, path: str, loader: "_AliasNotingLoader") -> Any:
        if isinstance(node, yaml.ScalarNode) or node.tag not in _PLAIN_CONTAINERS:
            return self._constructed(node, path, loader)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(entry, f"{path}[{at}]", loader) for at, entry in enumerate(node.value)]
        entries: dict[Any, Any] = {}
        lines: dict[Any, int] = {}
        for key_node, value_node in node.value:
            key = self._constructed(key_node, path, loader)
            if not isinstance(key, Hashable):
                self._remark(key_node, path, "a key is a list or a mapping; it should be a word")
            if id(key_node) in self._broken:
                continue
            where, line = within(path, key), key_node.start_mark.line + 1
            if key in entries:
                self._remark(key_node, where, f"{where} is there twice, first at line {lines[key]}; remove one of them")
            entries[key] = self._value(value_node, where, loader)
            lines.setdefault(key, line)
        return entries

    def _constructed(self, node: yaml.Node, path: str, loader: "_AliasNotingLoader") -> Any:
        construct: Callable[..., Any] = loader.construct_object
        try:
            return construct(node, deep=True)
        except _NO_VALUE as error:
            text = node.value if isinstance(node, yaml.ScalarNode) else node.tag
            problem = getattr(error, "problem", None) or error
            self._remark(node, path, f"YAML cannot read {text!r:.60}: {problem!s:.200}; put text in quotes")
            return None

    def _note_numbers(self) -> None:
        """Note each number in base 60 or 8 that stands without quotes: it was probably meant as text."""
        if self._root is None:
            return
        for place in _all_places(self._root):
            if len(self.remarks) >= _MOST_REMARKS:
                return
            for node in {id(each): each for each in place}.values():
                meaning = unquoted(node)
                if meaning is not None and node.tag in (f"{_PREFIX}int", f"{_PREFIX}float"):
                    self.remarks.append(Remark("warning", node.start_mark.line + 1, "", meaning))


class _AliasNotingLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which notes each alias and reads null in its place: a few lines of aliases can stand for very much."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.aliases: list[tuple[yaml.Node, str]] = []

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if not self.check_event(yaml.AliasEvent):
            node: yaml.Node | None = super().compose_node(parent, index)
            return node
        event = self.get_event()  # type: ignore[no-untyped-call]
        alias = yaml.ScalarNode(f"{_PREFIX}null", "null", event.start_mark, event.end_mark)
        message = f"the alias *{event.anchor:.40} is not allowed; write the value itself"
        self.aliases.append((alias, message))
        return alias


def unquoted(node: yaml.Node) -> str | None:
    """Return what YAML 1.1 makes of a scalar without quotes that looks like text, and what to write; None for any other node.

    Sources: int, float, bool and timestamp of the YAML 1.1 type repository, as PyYAML's resolver has them.
    """
    if not isinstance(node, yaml.ScalarNode) or node.style is not None:
        return None
    text, kind = node.value, node.tag.removeprefix(_PREFIX)
    if kind in ("int", "float") and ":" in text:
        meaning = "a number in base 60"
    elif kind == "int" and _OCTAL.fullmatch(text):
        meaning = "a number in base 8"
    elif kind == "bool" and text.lower() not in ("true", "false"):
        meaning = "true" if text.lower() in ("yes", "on") else "false"
    elif kind == "timestamp":
        meaning = "a date"
    else:
        return None
    return f'YAML 1.1 reads {text:.60} without quotes as {meaning}; it is text in quotes: "{text:.60}"'


def _entries(node: yaml.Node) -> Iterator[tuple[str, YamlPlace]]:
    """Yield each entry of a mapping or a list, with the part of a path that leads to it."""
    if isinstance(node, yaml.SequenceNode):
        yield from ((f"[{at}]", YamlPlace(entry, entry)) for at, entry in enumerate(node.value))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            for name in _names_of(key):
                yield within("", name), YamlPlace(key, value)


def _ends(path: str, at: int) -> list[int]:
    """Return where a part of a path that begins at `at` may end: a key may have dots and brackets itself."""
    return [end for end in range(at + 1, len(path) + 1) if path[end : end + 1] in ("", ".", "[")]


def _names_of(key: yaml.Node) -> Iterator[Any]:
    if key.tag == f"{_PREFIX}str":
        yield key.value
        return
    loader = yaml.SafeLoader("")
    construct: Callable[..., Any] = loader.construct_object
    try:
        yield construct(key, deep=True)
    except _NO_VALUE:
        return
    finally:
        loader.dispose()


def _all_places(root: yaml.Node) -> Iterator[YamlPlace]:
    waiting = [YamlPlace(root, root)]
    while waiting:
        place = waiting.pop()
        yield place
        if isinstance(place.value, yaml.SequenceNode):
            waiting += [YamlPlace(entry, entry) for entry in place.value.value]
        elif isinstance(place.value, yaml.MappingNode):
            waiting += [YamlPlace(key, value) for key, value in place.value.value]
