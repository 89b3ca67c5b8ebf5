"""Times, as the API server writes them.

Source: k8s.io/apimachinery, pkg/apis/meta/v1, Time.
"""

from datetime import datetime
from typing import Any


def moment(text: Any) -> float | None:
    """Return a metav1.Time in seconds since 1970; None if it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
