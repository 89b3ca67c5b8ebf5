"""The decision about the pods of a file, in words: what a review would do, without an API server."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from admission.decision import Additions, FreePort, decide
from admission.explain import report
from admission.patch import operations
from admission.policy import Namespace, Policy, switch
from admission.webhook_configuration import NEVER
from training.host_ports import parse as host_ports_range
from training.pod import parse
from vf.errors import Misconfigured, NotPermitted
from vf.network import is_sticky


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanation of one pod: lines of text, and whether a review would admit the pod."""

    lines: tuple[str, ...]
    allowed: bool


def first_port(host_ports: str) -> FreePort:
    """Return what gives each pod the first port of a range: which one is free, only the webhook knows.

    Raises:
        Misconfigured: the text is no range.
    """
    ports = host_ports_range(host_ports)
    return lambda _: ports.first


def explain(documents: Iterable[Any], policy: Policy, free_port: FreePort | None = None) -> Iterator[Explained]:
    """Yield an explanation of each pod of a file; a Namespace in the same file gives the labels of its pods' namespace.

    Raises:
        Misconfigured: a document is not a Pod, a Namespace, or a List of these.
    """
    pods: list[Mapping[str, Any]] = []
    namespaces: dict[str, Namespace] = {}
    for document in _flat(documents):
        if document["kind"] == "Pod":
            pods.append(document)
        else:
            namespace = _namespace(document)
            namespaces[namespace.name] = namespace
    for document in pods:
        yield _explained(document, namespaces, policy, free_port)


def _explained(
    document: Mapping[str, Any], namespaces: Mapping[str, Namespace], policy: Policy, free_port: FreePort | None
) -> Explained:
    try:
        pod = parse(document)
        namespace = pod.namespace or "default"
        decision = decide(pod, namespaces.get(namespace, Namespace(namespace)), policy, free_port)
    except (Misconfigured, NotPermitted) as error:
        subject, allowed, lines = f"pod {_name(document.get('metadata'))}", False, [f"  denied: {error}"]
    else:
        added = operations(document, decision) if isinstance(decision, Additions) else []
        (subject, *lines), allowed = report(pod, decision, added), True
    return Explained((subject, *_no_review(document.get("metadata")), *lines), allowed)


def _no_review(metadata: object) -> Iterator[str]:
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    if namespace in NEVER:
        newer = f"API servers of Kubernetes 1.21 and newer send none for pods of {namespace}"
        yield f"  no review: {newer}; an older one sends it, with this result:"


def _namespace(document: Mapping[str, Any]) -> Namespace:
    metadata = _mapping(document, "metadata")
    labels = {key: str(value) for key, value in _mapping(metadata, "labels").items()}
    return Namespace(str(metadata.get("name", "")), switch(labels, "namespace"), is_sticky(labels))


def _mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict | None):
        raise Misconfigured(f"{key} of the Namespace is {value!r:.60}; it should be a mapping")
    return value or {}


def _flat(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind == "List":
            items = document.get("items")
            if not isinstance(items, list | None):
                raise Misconfigured(f"the List's items are {items!r:.60}; they should be a list")
            yield from _flat(items or ())
        elif kind in ("Pod", "Namespace"):
            yield document
        elif document is not None:
            raise Misconfigured(
                f"the file has a document of kind {kind!r:.60}; it should have Pods as their operator makes them "
                "(kubectl get pod -o yaml), and their Namespace if it has labels of Railnet"
            )


def _name(metadata: object) -> str:
    """Return namespace and name of a pod that cannot be parsed, as far as they can be read."""
    known = metadata if isinstance(metadata, dict) else {}
    return f"{known.get('namespace') or 'default'}/{known.get('name') or 'without a name'}"
