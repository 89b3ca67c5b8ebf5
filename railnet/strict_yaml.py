"""A strict YAML loader for the node's configuration: no key twice in one mapping, no alias, not longer than a ConfigMap."""

from collections import Counter
from typing import Any

import yaml

from railnet.errors import Misconfigured

MOST_CHARACTERS = 1 << 20  # the most that a ConfigMap holds
# PyYAML raises the errors after YAMLError for a value that does not fit its tag: a date with month 99, `!!bool x`, `!!int ""`,
# a number with thousands of digits or parts.
_NOT_YAML = (yaml.YAMLError, ValueError, AttributeError, LookupError, ArithmeticError, TypeError)


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
    except _NOT_YAML as error:
        raise Misconfigured(f"it is not YAML: {error!s:.400}") from None
    return {} if document is None else document


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with two more errors.

    A key that is twice in one mapping is an error, as YAML 1.2 (3.2.1.3) demands. An alias is an error because a few lines of
    aliases can stand for more values than memory holds.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise Misconfigured(
                f"line {event.start_mark.line + 1} has the alias *{event.anchor:.40}; aliases are not allowed, write the value itself"
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        mapping = super().construct_mapping(node, deep)
        twice = next((key for key, times in Counter(keys).items() if times > 1), None)  # all keys are hashable here
        if twice is not None:
            raise Misconfigured(
                f"the mapping at line {node.start_mark.line + 1} has the key {twice!r:.80} twice; remove one of them"
            )
        return mapping
