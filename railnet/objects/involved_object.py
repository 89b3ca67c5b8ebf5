"""The object that an event is about.

Source: kubernetes/api, core/v1 ObjectReference.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class InvolvedObject:
    """The object that an event is about; `namespace` is None for an object of the whole cluster."""

    api_version: str
    kind: str
    namespace: str | None
    name: str
    uid: str

    def __str__(self) -> str:
        """Name the object in the log."""
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"

    def reference(self) -> dict[str, Any]:
        """Return the object as an event names it."""
        namespace = {} if self.namespace is None else {"namespace": self.namespace}
        return {"apiVersion": self.api_version, "kind": self.kind, **namespace, "name": self.name, "uid": self.uid}
