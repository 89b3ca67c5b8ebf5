"""Keeps the large parts of pods, each once, as far as the share of its namespace permits.

The pods of a job have such parts in common; those of a tenant that wants to fill the memory have not. One thread uses it.
"""

from collections import Counter, deque
from typing import Generic, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, finalize, ref

# Of all namespaces together. Only when that is used up, each namespace may have no more than an equal share of it, or a sixteenth: an honest cluster
# has less in all, and a tenant with many namespaces takes nothing from the others.
MOST_BYTES = 16 << 20
_MOST_SHARES = 16
SMALL_BYTES = 1 << 10  # a smaller part is not counted: each pod may have it

_Part = TypeVar("_Part")


class NamespaceShares:
    """The bytes that large parts of each namespace take."""

    def __init__(self) -> None:
        """Begin without any."""
        self._bytes: Counter[str] = Counter()
        self._total = 0

    def permits(self, namespace: str, size: int) -> bool:
        """Return whether a namespace may have so many bytes more."""
        if self._total + size <= MOST_BYTES:
            return True
        namespaces = len(self._bytes) + (namespace not in self._bytes)
        return self._bytes[namespace] + size <= MOST_BYTES // min(namespaces, _MOST_SHARES)

    def take(self, namespace: str, size: int) -> None:
        """Count bytes of a namespace."""
        self._bytes[namespace] += size
        self._total += size

    def give_back(self, namespace: str, size: int) -> None:
        """Count so many bytes less."""
        self._total -= size
        self._bytes[namespace] -= size
        if not self._bytes[namespace]:
            del self._bytes[namespace]


class KeptParts(Generic[_Part]):
    """The large parts that anything still has."""

    def __init__(self) -> None:
        """Begin without parts."""
        self._parts: WeakKeyDictionary[_Part, ReferenceType[_Part]] = WeakKeyDictionary()
        self._shares = NamespaceShares()  # by the namespace that had the part first
        self._gone: deque[tuple[str, int]] = deque()  # the end of the last reference fills it, at any moment

    def keep(self, namespace: str, part: _Part, size: int) -> _Part | None:
        """Return the part that is equal and kept already, or else this one; None if the namespace may not have so many bytes more."""
        while self._gone:
            self._shares.give_back(*self._gone.popleft())
        known = self._parts.get(part)
        kept = None if known is None else known()
        if kept is not None:
            return kept
        if not self._shares.permits(namespace, size):
            return None
        self._shares.take(namespace, size)
        self._parts[part] = ref(part)
        finalize(part, self._gone.append, (namespace, size)).atexit = False
        return part
