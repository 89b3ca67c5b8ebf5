"""The labels of one node: how they are looked at and changed with no other right than to patch nodes.

A patch that changes nothing writes nothing (k8s.io/apiserver, pkg/storage/etcd3/store.go: an object that stays as it is keeps its
`resourceVersion`), and its answer shows the node. So the right to read all nodes is not needed.

Source: kubernetes.io/docs/reference/using-api/api-concepts, "Metadata-only fetches".
"""

from collections.abc import Mapping
from dataclasses import replace

from railnet.apiserver.request import ApiObject, JsonObject, Request, get, merge_patch

# The images and volumes of a node's status would be many kilobytes.
_METADATA_FIRST = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


def look(node: str) -> Request:
    """Return the request whose answer shows the labels of a node.

    Raises:
        ValueError: as `ApiObject`.
    """
    return change(node, {})


def change(node: str, labels: Mapping[str, str | None]) -> Request:
    """Return the request that sets labels of a node, and removes those that are None.

    Raises:
        ValueError: as `ApiObject`.
    """
    patch = merge_patch(ApiObject("v1", "nodes", node), {"metadata": {"labels": dict(labels)}})
    return replace(patch, accept=_METADATA_FIRST)


def metadata_of(node: str) -> Request:
    """Return the request whose answer shows the metadata of a node. It needs the right to read nodes, and not to patch them.

    Raises:
        ValueError: as `ApiObject`.
    """
    return replace(get(ApiObject("v1", "nodes", node)), accept=_METADATA_FIRST)


def parse(answer: JsonObject) -> dict[str, str]:
    """Return the labels of the node that an answer shows; a label that is no text is left out."""
    metadata = answer.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    if not isinstance(labels, dict):
        return {}
    return {key: value for key, value in labels.items() if isinstance(value, str)}
