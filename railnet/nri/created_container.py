"""A container that the runtime asks about, and what it gets: values."""

from typing import NamedTuple


class CreatedContainer(NamedTuple):
    """A container that the runtime is about to create.

    Attributes:
        pod: namespace and name of its pod, and its own name, as messages name it.
        pod_uid: of its pod.
        devices: major and minor number of each of its character devices.
        limits: the resource limits that it has of its own, by their names of getrlimit(2).
    """

    pod: str
    pod_uid: str
    devices: frozenset[tuple[int, int]]
    limits: frozenset[str]


class ResourceLimit(NamedTuple):
    """A resource limit of a container: its name of getrlimit(2), and its value, soft and hard."""

    name: str
    value: int
