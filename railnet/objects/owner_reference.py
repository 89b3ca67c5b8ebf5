"""The objects that own another one: `metadata.ownerReferences`.

Source: k8s.io/apimachinery, pkg/apis/meta/v1, OwnerReference. At most one owner is the controller, which makes the object again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from railnet.objects.involved_object import InvolvedObject

# The API server accepts texts of any length here. A group and version have 317 characters at most, a name 253, a UID 36.
LONGEST_TEXT = 320


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

        A text that is longer than any object's is cut to one that is still longer, so that it names no object either.

        Raises:
            KeyError, TypeError: the API server sends no such entry.
        """
        version, kind, name, uid = (reference[key][: LONGEST_TEXT + 1] for key in ("apiVersion", "kind", "name", "uid"))
        return cls(version, kind, name, uid)

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
    """Return the reference to the owner that makes the object again; None if there is none. Long texts are cut, as by `OwnerReference.read`."""
    for reference in owner_references:
        if reference.get("controller") is True:
            return {key: text[: LONGEST_TEXT + 1] if isinstance(text, str) else text for key, text in reference.items()}
    return None


def controller(document: Mapping[str, Any]) -> OwnerReference | None:
    """Return the owner of an object that makes the object again; None if it has none.

    Raises:
        KeyError, TypeError, AttributeError: the API server sends no such object.
    """
    reference = controlling(references(document["metadata"]))
    return None if reference is None else OwnerReference.read(reference)
