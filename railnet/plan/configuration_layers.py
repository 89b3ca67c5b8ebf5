"""node.yaml in layers, as Helm and the chart merge them: what a group of nodes has beyond the configuration of all nodes. Pure."""

from collections.abc import Mapping
from typing import Any

_NOT_OF_VALUES = frozenset(("apiVersion", "kind"))  # the chart writes them (templates/node/configmap.yaml)
_IPAM = "ipam"


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return one configuration over another: mappings key by key, an `ipam` and all else as a whole (charts/railnet, railnet.merged)."""
    whole = dict(below)
    for key, value in above.items():
        is_merged = isinstance(value, dict) and isinstance(whole.get(key), dict) and key != _IPAM
        whole[key] = merged(whole[key], value) if is_merged else value
    return whole


def beyond(document: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return the least that makes `document` when it is merged over `base`. A key of `base` alone cannot be taken away, so it is left out."""
    own = {}
    for key, value in document.items():
        if key in _NOT_OF_VALUES or value == base.get(key):
            continue
        is_merged = isinstance(value, dict) and isinstance(base.get(key), dict) and key != _IPAM
        own[key] = beyond(value, base[key]) if is_merged else value
    return own


def without(document: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """Return a configuration without one key; a mapping that has no key then goes with it."""
    first, *rest = path
    value = document.get(first)
    left = {key: each for key, each in document.items() if key != first}
    if rest and isinstance(value, dict):
        inner = without(value, *rest)
        return {**left, first: inner} if inner else left
    return left if not rest else dict(document)


def rails_over(rails: Any, base: Any) -> Any:
    """Return `rails` so that no condition of the `rails.select` below it is left: an empty list is no condition."""
    conditions, below = _conditions(rails), _conditions(base)
    if conditions is None or below is None:
        return rails
    return {"select": {**conditions, **{key: [] for key in below if key not in conditions}}}


def plain_rails(rails: Any) -> Any:
    """Return `rails` in the form in which equal ones are the same: auto if absent, and without conditions that are none."""
    conditions = _conditions(rails)
    if conditions is not None:
        return {"select": {key: value for key, value in conditions.items() if value}}
    return "auto" if rails is None else rails


def _conditions(rails: Any) -> Mapping[str, Any] | None:
    select = rails.get("select") if isinstance(rails, dict) else None
    return select if isinstance(select, dict) else None
