"""The fields of a pod in which operators write job, role, rank and size: the vocabulary of the table in `operators`."""

import json
from collections.abc import Callable
from typing import NamedTuple

from railnet.objects.pod import Container, Pod

_MAX_LENGTH = 32 << 12  # execve(2), MAX_ARG_STRLEN: no process starts with a longer variable


class Field(NamedTuple):
    """A field of a pod, or of the container that trains.

    Attributes:
        title: its name in the documentation.
        read: returns its text; None if the pod does not have it.
        key: the key of the label, or of the annotation of the same name, that it is; empty for any other field.
    """

    title: str
    read: Callable[[Pod, Container], str | None]
    key: str = ""


def key(name: str) -> Field:
    """Return a label, or an annotation of the same name, since some operators write only the annotation."""
    return Field(f"`{name}`", lambda pod, _: pod.read(name), name)


def label(name: str) -> Field:
    """Return a label, but no annotation of the same name: a label of Railnet that the pod's author may set."""
    return Field(f"`{name}`", lambda pod, _: pod.labels.get(name))


def env(name: str) -> Field:
    """Return an environment variable of the training container: a number, or a range such as torchrun's `1:4`, whose end counts."""
    return Field(
        f"environment `{name}`", lambda _, container: (container.env.get(name) or "").rpartition(":")[2] or None
    )


def address_count(name: str) -> Field:
    """Return the number of addresses in the `cluster` of a variable such as TF_CONFIG."""
    return Field(
        f"the addresses in environment `{name}`", lambda _, container: _addresses(container.env.get(name) or "{}")
    )


def always(text: str) -> Field:
    """Return a text that is the same for all pods of an operator."""
    return Field(f"always {text}", lambda _pod, _container: text)


def either(name: str, value: str, then: str, otherwise: str) -> Field:
    """Return one of two texts: `then` if a key has the value, `otherwise` if it has another or is missing."""
    title = f"{then} where `{name}` is {value}, otherwise {otherwise}"
    return Field(title, lambda pod, _: then if pod.read(name) == value else otherwise)


def first(*fields: Field) -> Field:
    """Return the first of several fields that has a text."""

    def read(pod: Pod, container: Container) -> str | None:
        for field in fields:
            if text := field.read(pod, container):
                return text
        return None

    return Field(", else ".join(field.title for field in fields), read)


# The pod's own name, if it has no controller.
CONTROLLER_NAME = Field("the controller's name", lambda pod, _: pod.owner or pod.name.rstrip("-") or None)


def _addresses(variable: str) -> str | None:
    """Count the addresses; None if the variable is malformed, sparse, or too long for a process.

    A sparse `cluster` does not contain all addresses (https://www.tensorflow.org/api_docs/python/tf/train/ClusterSpec), so it has no count.
    """
    if len(variable) > _MAX_LENGTH:
        return None
    try:
        cluster = json.loads(variable).get("cluster")
    except (ValueError, AttributeError, RecursionError):  # a user may write it by hand: not JSON, or not an object
        return None
    tasks = list(cluster.values()) if isinstance(cluster, dict) else []
    whole = bool(tasks) and all(isinstance(addresses, list) for addresses in tasks)
    return str(sum(map(len, tasks))) if whole else None
