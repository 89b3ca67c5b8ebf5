"""The name of a pod in the cluster."""

from typing import NamedTuple


class PodName(NamedTuple):
    """A pod, and no other of the same name."""

    namespace: str
    name: str
    uid: str
