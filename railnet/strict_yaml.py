"""A strict YAML loader for the node's configuration: no key twice in one mapping, no alias, not longer than a ConfigMap."""

import re
from collections import Counter
from typing import Any, NamedTuple

import yaml

from railnet.errors import Misconfigured

MOST_CHARACTERS = 1 << 20  # the most that a ConfigMap holds
# PyYAML raises the errors after YAMLError for a value that does not fit its tag: a date with month 99, `!!bool x`, `!!int ""`,
# a number with thousands of digits or parts.
_NO_VALUE = (ValueError, AttributeError, LookupError, ArithmeticError, TypeError)
# What PyYAML's messages have in quotes: one character, a token of YAML such as '<block end>', or a word of the file.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_NO_WORD = re.compile(r"""["'](.|\\t|<[a-z ]+>)["']""")
_LONGEST_PROBLEM = 200  # characters
_MOST_BRACKETS = 100  # that are open: PyYAML's time grows with the square of their number, to a second for a thousand


class Problem(NamedTuple):
    """Why a text is no YAML, without words of the text: it may have a password.

    Attributes:
        line, column: where, counted from 1; None if PyYAML does not say.
        what: PyYAML's own words.
    """

    line: int | None
    column: int | None
    what: str

    def __str__(self) -> str:
        """Return what a message says."""
        return self.what if self.line is None else f"line {self.line}, column {self.column}: {self.what}"


def problem_of(error: yaml.YAMLError, text: str) -> Problem:
    """Return what PyYAML says of a text."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        column = error.position - (before.rfind("\n") + 1) + 1
        return Problem(
            before.count("\n") + 1, column, f"a character has the code {error.character}, which YAML does not allow"
        )
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem(None, None, "it cannot be read")
    mark = error.problem_mark or error.context_mark
    words = " ".join(filter(None, (error.context, error.problem)))
    what = _QUOTED.sub(lambda quoted: quoted[0] if _NO_WORD.fullmatch(quoted[0]) else "(left out)", words)
    return Problem(
        None if mark is None else mark.line + 1, None if mark is None else mark.column + 1, what[:_LONGEST_PROBLEM]
    )


def read(text: str) -> Any:
    """Read a document; an empty document is an empty mapping.

    Raises:
        Misconfigured: the text is too long, is not YAML, has an alias, or has a key twice in one mapping.
        RecursionError: the document is nested too deeply.
    """
    if len(text) > MOST_CHARACTERS:
        raise Misconfigured(f"it has {len(text)} characters; it should have at most {MOST_CHARACTERS}, as a ConfigMap")
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.YAMLError as error:
        raise Misconfigured(f"it is not YAML: {problem_of(error, text)}") from None
    return {} if document is None else document


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with two more errors, and one that comes earlier.

    A key that is twice in one mapping is an error, as YAML 1.2 (3.2.1.3) demands. An alias is an error because a few lines of
    aliases can stand for more values than memory holds. Too many brackets are an error before they are read, not after.
    """

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= _MOST_BRACKETS:
            raise RecursionError(f"more than {_MOST_BRACKETS} brackets are open")
        super().fetch_flow_collection_start(token)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise Misconfigured(
                f"line {event.start_mark.line + 1} has an alias; aliases are not allowed, write the value itself, or put text that begins with * in quotes"
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _NO_VALUE:
            raise yaml.constructor.ConstructorError(
                None, None, "the value does not fit its tag", node.start_mark
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):  # such as `!!set 1`: PyYAML comes here after `construct_object`
            raise yaml.constructor.ConstructorError(None, None, "the value does not fit its tag", node.start_mark)
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        lines = [key.start_mark.line + 1 for key, _ in node.value]
        mapping = super().construct_mapping(node, deep)
        twice = next((key for key, times in Counter(keys).items() if times > 1), None)  # all keys are hashable here
        if twice is not None:
            first, second, *_ = (line for key, line in zip(keys, lines, strict=True) if key == twice)
            raise Misconfigured(
                f"the key {twice!r:.80} is at line {first} and again at line {second}; remove one of them"
            )
        return mapping
