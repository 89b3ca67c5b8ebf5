"""The objects that own another one: `metadata.ownerReferences`.

Source: k8s.io/apimachinery, pkg/apis/meta/v1, OwnerReference. At most one owner is the controller, which makes the object again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from railnet.objects.involved_object import InvolvedObject

# The API server accepts texts of any length here. A UID has 36 characters, a name and a group are DNS subdomains.
_LONGEST = {"apiVersion": 253 + 1 + 63, "kind": 63, "name": 253, "uid": 128}


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """An object that owns another one, as in `metadata.ownerReferences`."""

    api_version: str
    kind: str
    name: str
    uid: str

    @classmethod
    def read(cls, reference: Mapping[str, Any]) -> Self:
        """Read an entry of `metadata.ownerReferences`.

        Raises:
            KeyError: the API server sends no such entry.
        """
        return cls(reference["apiVersion"], reference["kind"], reference["name"], reference["uid"])

    def reference(self) -> dict[str, Any]:
        """Return the reference that an object has which goes when this one is gone."""
        return {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}

    def involved(self, namespace: str) -> InvolvedObject:
        """Return this object as what an event is about."""
        return InvolvedObject(self.api_version, self.kind, namespace, self.name, self.uid)


def references(metadata: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the references of an object to its owners, as `metadata` has them."""
    return metadata.get("ownerReferences") or ()


def controlling(owner_references: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the reference to the owner that makes the object again; None if there is none, or no object can be meant."""
    for reference in owner_references:
        if reference.get("controller") is True:
            return reference if _can_exist(reference) else None
    return None


def controller(document: Mapping[str, Any]) -> OwnerReference | None:
    """Return the owner of an object that makes the object again; None if it has none.

    Raises:
        KeyError, TypeError, AttributeError: the API server sends no such object.
    """
    reference = controlling(references(document["metadata"]))
    return None if reference is None else OwnerReference.read(reference)


def _can_exist(reference: Mapping[str, Any]) -> bool:
    """Return whether no field is longer than that of any object. Whether it is a text is the reader's to check."""
    return all(len(str(reference.get(key, ""))) <= most for key, most in _LONGEST.items())
