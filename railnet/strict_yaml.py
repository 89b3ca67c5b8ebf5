"""YAML as the node's configuration is written in: strict, and bounded in what a few lines may stand for."""

from collections import Counter
from typing import Any

import yaml

from vf.errors import Misconfigured

_MAX_CHARACTERS = 1 << 20  # as a ConfigMap has
# PyYAML raises the others for what its tag says and it is not: a date that is none, `!!bool x`, `!!int ""`, a number of
# thousands of digits or parts.
_NO_YAML = (yaml.YAMLError, ValueError, AttributeError, LookupError, ArithmeticError, TypeError)


def read(text: str) -> Any:
    """Read a document; an empty one is an empty mapping.

    Raises:
        Misconfigured: it is too long, no YAML, or has a key twice or an alias. RecursionError: it is nested too deeply.
    """
    if len(text) > _MAX_CHARACTERS:
        raise Misconfigured(f"it has {len(text)} characters; no ConfigMap has more than {_MAX_CHARACTERS}")
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - it is a SafeLoader
    except _NO_YAML as error:
        raise Misconfigured(f"it is not YAML: {error!s:.400}") from None
    return {} if document is None else document


class _Loader(yaml.SafeLoader):
    """YAML as PyYAML reads it, but a key that stands twice in one mapping is an error, as YAML 1.2 (3.2.1.3) says.

    So is an alias: a few lines of them stand for more than any memory holds.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise Misconfigured(
                f"line {event.start_mark.line + 1} has the alias *{event.anchor:.40}; write the value itself"
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        mapping = super().construct_mapping(node, deep)
        twice = next((key for key, times in Counter(keys).items() if times > 1), None)  # each can be counted by now
        if twice is not None:
            raise Misconfigured(
                f"the key {twice!r:.80} is given twice in one mapping (line {node.start_mark.line + 1})"
            )
        return mapping
