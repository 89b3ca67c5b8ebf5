"""The fields of a pod in which operators write job, role, rank and size: the vocabulary of the table in `operators`.

Each field reads one text from a pod; None if the pod does not have it. `str` of a field is its name in the documentation.
"""

import json
from dataclasses import dataclass
from typing import Protocol

from railnet.objects.pod import Container, Pod

_MAX_LENGTH = 32 << 12  # execve(2), MAX_ARG_STRLEN: no process starts with a longer variable


class Field(Protocol):
    """A field of a pod, or of the container that trains."""

    def read(self, pod: Pod, container: Container) -> str | None:
        """Return the field's text; None if the pod does not have it."""


@dataclass(frozen=True, slots=True)
class Key:
    """A label, or an annotation of the same name, since some operators write only the annotation."""

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002 - all fields have one signature
        """Return the value of the label, or of the annotation."""
        return pod.read(self.name)

    def __str__(self) -> str:
        return f"`{self.name}`"


@dataclass(frozen=True, slots=True)
class Label:
    """A label, but no annotation of the same name: a label of Railnet that the pod's author may set."""

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return the label's value."""
        return pod.labels.get(self.name)

    def __str__(self) -> str:
        return f"`{self.name}`"


@dataclass(frozen=True, slots=True)
class Env:
    """An environment variable of the training container: a number, or a range such as torchrun's `1:4`, whose end counts."""

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return the variable's value, or the end of its range."""
        value = container.env.get(self.name)
        return value and value.rpartition(":")[2]

    def __str__(self) -> str:
        return f"environment `{self.name}`"


@dataclass(frozen=True, slots=True)
class AddressCount:
    """The number of addresses in the `cluster` of a variable such as TF_CONFIG.

    A sparse `cluster` does not contain all addresses (https://www.tensorflow.org/api_docs/python/tf/train/ClusterSpec), so it has no count.
    """

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return the number of addresses; None if the variable is missing, malformed, sparse, or too long for a process."""
        value = container.env.get(self.name) or "{}"
        if len(value) > _MAX_LENGTH:
            return None
        try:
            cluster = json.loads(value).get("cluster")
        except (ValueError, AttributeError, RecursionError):  # a user may write it by hand: not JSON, or not an object
            return None
        tasks = list(cluster.values()) if isinstance(cluster, dict) else []
        whole = bool(tasks) and all(isinstance(addresses, list) for addresses in tasks)
        return str(sum(map(len, tasks))) if whole else None

    def __str__(self) -> str:
        return f"the addresses in environment `{self.name}`"


@dataclass(frozen=True, slots=True)
class Always:
    """A text that is the same for all pods of an operator."""

    text: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return the text."""
        return self.text

    def __str__(self) -> str:
        return f"always {self.text}"


@dataclass(frozen=True, slots=True)
class Either:
    """One of two texts: `then` if a key has the value, `otherwise` if it has another or is missing."""

    key: str
    value: str
    then: str
    otherwise: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return the text that applies."""
        return self.then if pod.read(self.key) == self.value else self.otherwise

    def __str__(self) -> str:
        return f"{self.then} where `{self.key}` is {self.value}, otherwise {self.otherwise}"


@dataclass(frozen=True, slots=True)
class ContainerName:
    """The name of the training container, if it is this name."""

    name: str

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return the name; None if the container has another name."""
        return self.name if container.name == self.name else None

    def __str__(self) -> str:
        return f"a container named `{self.name}`"


@dataclass(frozen=True, slots=True)
class ControllerName:
    """The name of the pod's controller; the pod's own name if it has no controller."""

    def read(self, pod: Pod, container: Container) -> str | None:  # noqa: ARG002
        """Return the name."""
        return pod.owner or pod.name.rstrip("-") or None

    def __str__(self) -> str:
        return "the controller's name"


class First:
    """The first of several fields that has a text."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields

    def read(self, pod: Pod, container: Container) -> str | None:
        """Return the text of that field; None if no field has one."""
        for field in self.fields:
            if text := field.read(pod, container):
                return text
        return None

    def __str__(self) -> str:
        return ", else ".join(map(str, self.fields))
