"""Keeps the large parts of pods, each once, as far as the share of its namespace permits.

The pods of a job have such parts in common; those of a tenant that wants to fill the memory have not. One thread uses it.
"""

from collections import Counter, deque
from typing import Generic, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, finalize, ref

# Of all namespaces together; each that has large parts may have an equal share of it. It holds the requirements of hundreds of jobs that name two
# hundred nodes each. More namespaces get less each, so the sum stays within some times as much.
MOST_BYTES = 16 << 20
SMALL_BYTES = 1 << 10  # a smaller part is not counted: each pod may have it

_Part = TypeVar("_Part")


class KeptParts(Generic[_Part]):
    """The large parts that anything still has."""

    def __init__(self) -> None:
        """Begin without parts."""
        self._parts: WeakKeyDictionary[_Part, ReferenceType[_Part]] = WeakKeyDictionary()
        self._bytes: Counter[str] = Counter()  # by the namespace that had the part first
        self._gone: deque[tuple[str, int]] = deque()  # filled at any moment, by whoever drops the last reference

    def keep(self, namespace: str, part: _Part, size: int) -> _Part | None:
        """Return the part that is equal and kept already, or else this one; None if the namespace may not have so many bytes more."""
        self._forget()
        known = self._parts.get(part)
        kept = None if known is None else known()
        if kept is not None:
            return kept
        if self._bytes[namespace] + size > MOST_BYTES // len({namespace, *self._bytes}):
            return None
        self._bytes[namespace] += size
        self._parts[part] = ref(part)
        finalize(part, self._gone.append, (namespace, size)).atexit = False
        return part

    def _forget(self) -> None:
        while self._gone:
            namespace, size = self._gone.popleft()
            self._bytes[namespace] -= size
        self._bytes = +self._bytes
