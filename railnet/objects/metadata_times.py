"""The moments in an object's `metadata`: when it was created, and whether it has been deleted.

Source: k8s.io/apimachinery, pkg/apis/meta/v1, ObjectMeta.
"""

from collections.abc import Mapping
from typing import Any

from railnet.objects.times import moment


def is_deleted(metadata: Mapping[str, Any]) -> bool:
    """Return whether an object has been deleted, and the API server has not forgotten it yet."""
    return bool(metadata.get("deletionTimestamp"))


def created(metadata: Mapping[str, Any]) -> float:
    """Return when an object was created, in seconds since 1970; 0 if that is not known."""
    return moment(created_text(metadata)) or 0.0


def created_text(metadata: Mapping[str, Any]) -> str:
    """Return when an object was created, as the API server writes times: such texts sort by time; empty if that is not known."""
    return str(metadata.get("creationTimestamp") or "")
