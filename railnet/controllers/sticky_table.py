"""The ConfigMap with the numbers of all ranks that have an address which stays.

It is one object, so that its `resourceVersion` makes two leaders agree. Each network has a key. Its value has a line of JSON for each
job, so that a person can read it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from railnet.apiserver.request import ApiObject, JsonObject
from railnet.objects.owner_reference import OwnerReference

NAME = "railnet-sticky-addresses"
MOST_BYTES = 1_000_000  # kube-apiserver takes 1 MiB of data in a ConfigMap: k8s.io/kubernetes/pkg/apis/core/validation, MaxSecretSize


class Holder(NamedTuple):
    """A job that numbers are assigned to, by its root; `root` is None for pods that nothing makes again."""

    namespace: str
    job: str
    root: OwnerReference | None

    def __str__(self) -> str:
        """Name the job, and tell it from another one of the same name."""
        return f"{self.namespace}/{self.job} {'' if self.root is None else self.root.uid}"


Numbers = Mapping[Holder, Mapping[str, int]]


class UnreadableTable(ValueError):
    """The table is not one that Railnet wrote; `str()` says where, and what to do."""


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers by network, and the object that they were read from; None if there is none yet."""

    networks: Mapping[str, Numbers]
    found: JsonObject | None = None


def address(namespace: str) -> ApiObject:
    """Return the table's address in the controllers' namespace."""
    return ApiObject("v1", "configmaps", NAME, namespace)


def read(config_map: JsonObject) -> Table:
    """Read the table.

    Raises:
        UnreadableTable: it has been changed by hand.
    """
    data = config_map.get("data") or {}
    return Table({network: dict(_jobs(network, text)) for network, text in data.items()}, config_map)


def body(table: Table, namespace: str) -> JsonObject:
    """Return the object as it is created; or as it replaces the one that was read, if that has not changed."""
    metadata = {"name": NAME, "namespace": namespace} if table.found is None else table.found["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts(table.networks)}


def texts(networks: Mapping[str, Numbers]) -> dict[str, str]:
    """Return the table's content."""
    return {network: "".join(_lines(numbers)) for network, numbers in networks.items() if numbers}


def size(networks: Mapping[str, Numbers]) -> int:
    """Return the bytes of the table's content; all of it is ASCII."""
    return sum(map(len, texts(networks).values()))


def size_of_rank(holder: Holder, ranks: Mapping[str, int]) -> int:
    """Return how many bytes a rank takes: its part of its job's line."""
    return -(-len("".join(_lines({holder: ranks}))) // len(ranks))


def _lines(numbers: Numbers) -> Iterator[str]:
    for holder, ranks in sorted(numbers.items(), key=lambda holder_and_ranks: str(holder_and_ranks[0])):
        root = None if holder.root is None else holder.root.reference()
        job = {"namespace": holder.namespace, "job": holder.job, "root": root, "numbers": dict(sorted(ranks.items()))}
        yield json.dumps(job, separators=(",", ":")) + "\n"


def _jobs(network: str, text: str) -> Iterator[tuple[Holder, dict[str, int]]]:
    used: set[int] = set()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            holder, ranks = _job(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _unreadable(network, number, repr(error)) from None
        if len(used | set(ranks.values())) != len(used) + len(ranks):
            raise _unreadable(network, number, "a number is assigned twice")
        used |= set(ranks.values())
        yield holder, ranks


def _job(job: Mapping[str, Any]) -> tuple[Holder, dict[str, int]]:
    root = job["root"]
    owner = None if root is None else OwnerReference(root["apiVersion"], root["kind"], root["name"], root["uid"])
    return Holder(job["namespace"], job["job"], owner), {
        str(rank): int(number) for rank, number in job["numbers"].items()
    }


def _unreadable(network: str, line: int, why: str) -> UnreadableTable:
    return UnreadableTable(
        f"ConfigMap {NAME} cannot be read: line {line} of {network}: {why:.200}; restore the line, or delete the ConfigMap: then the "
        "addresses of ranks that have a pod come back from the pods"
    )
