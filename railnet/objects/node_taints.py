"""The taints of a node.

Source: kubernetes/api, core/v1 Taint.
"""

from collections.abc import Mapping
from typing import Any


def has_taint(node: Mapping[str, Any], key: str) -> bool:
    """Return whether a node has a taint with this key."""
    return any(taint.get("key") == key for taint in (node.get("spec") or {}).get("taints") or ())
