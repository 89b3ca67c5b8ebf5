"""Where on a pod an operator writes what we want to know: the vocabulary of the table in `operators`.

Each is a value that reads one text, or None where the pod has none; written out, it is how the documentation names it.
"""

import json
from dataclasses import dataclass
from typing import Protocol

from training.pod import Container, Pod


class Source(Protocol):
    """A place on a pod, or in the container that trains."""

    def read(self, pod: Pod, container: Container) -> str | None:
        """Return what stands there."""


@dataclass(frozen=True, slots=True)
class Key:
    """A label; or an annotation of that name, where the operator or an older Kubernetes writes only that."""

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002 - one signature for all
        """Return its value."""
        return pod.read(self.name)

    def __str__(self) -> str:
        return f"`{self.name}`"


@dataclass(frozen=True, slots=True)
class Label:
    """A label, and nothing else of that name: what a pod's author may say."""

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return its value."""
        return pod.labels.get(self.name)

    def __str__(self) -> str:
        return f"`{self.name}`"


@dataclass(frozen=True, slots=True)
class Env:
    """An environment variable of the training container: a number, or a range like torchrun's `1:4`, of which the end counts."""

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return its value."""
        value = container.env.get(self.name)
        return value and value.rpartition(":")[2]

    def __str__(self) -> str:
        return f"environment `{self.name}`"


@dataclass(frozen=True, slots=True)
class Addresses:
    """How many addresses stand in the `cluster` of a variable like TF_CONFIG.

    A sparse one does not tell (https://www.tensorflow.org/api_docs/python/tf/train/ClusterSpec).
    """

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Count them."""
        try:
            cluster = json.loads(container.env.get(self.name) or "{}").get("cluster")
        except (ValueError, AttributeError, RecursionError):  # written by hand: no JSON, or no object
            return None
        tasks = list(cluster.values()) if isinstance(cluster, dict) else []
        whole = bool(tasks) and all(isinstance(addresses, list) for addresses in tasks)
        return str(sum(map(len, tasks))) if whole else None

    def __str__(self) -> str:
        return f"the addresses in environment `{self.name}`"


@dataclass(frozen=True, slots=True)
class Always:
    """The same for all pods of an operator."""

    text: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Give it."""
        return self.text

    def __str__(self) -> str:
        return f"always {self.text}"


@dataclass(frozen=True, slots=True)
class Either:
    """One of two texts: `then` where a key has that value, `otherwise` where it has another or is missing."""

    key: str
    value: str
    then: str
    otherwise: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return one of them."""
        return self.then if pod.read(self.key) == self.value else self.otherwise

    def __str__(self) -> str:
        return f"{self.then} where `{self.key}` is {self.value}, otherwise {self.otherwise}"


@dataclass(frozen=True, slots=True)
class ContainerName:
    """The training container's name, if it is this one."""

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Give it."""
        return self.name if container.name == self.name else None

    def __str__(self) -> str:
        return f"a container named `{self.name}`"


@dataclass(frozen=True, slots=True)
class Owner:
    """The name of the pod's controller; without one, the pod's own."""

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Give it."""
        return pod.owner or pod.name.rstrip("-") or None

    def __str__(self) -> str:
        return "the controller's name"


class First:
    """The first of several that says anything."""

    def __init__(self, *sources: Source) -> None:
        self.sources = sources

    def read(self, pod: Pod, container: Container) -> str | None:
        """Return what it says."""
        return next((text for source in self.sources if (text := source.read(pod, container))), None)

    def __str__(self) -> str:
        return ", else ".join(map(str, self.sources))
