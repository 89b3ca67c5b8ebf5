"""The same decision for pods out of a file: what a review would do, in words, without an API server."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from admission.decision import Additions, decide
from admission.explain import report
from admission.patch import operations
from admission.policy import Namespace, Policy, switch
from admission.scope import NEVER
from training.pod import parse
from vf.errors import Misconfigured, NotPermitted


@dataclass(frozen=True, slots=True)
class Explained:
    """What would become of one pod: lines to read, and whether it would be let in."""

    lines: tuple[str, ...]
    allowed: bool


def explain(documents: Iterable[Any], policy: Policy) -> Iterator[Explained]:
    """Explain each pod of a file, whose namespaces' labels are those of the Namespaces in the same file.

    Raises:
        Misconfigured: a document is neither Pod, Namespace nor a List of them.
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
        yield _explained(document, namespaces, policy)


def _explained(document: Mapping[str, Any], namespaces: Mapping[str, Namespace], policy: Policy) -> Explained:
    try:
        pod = parse(document)
        namespace = pod.namespace or "default"
        decision = decide(pod, namespaces.get(namespace, Namespace(namespace)), policy)
    except (Misconfigured, NotPermitted) as error:
        subject, allowed, lines = f"pod {_name(document.get('metadata'))}", False, [f"  denied: {error}"]
    else:
        added = operations(document, decision) if isinstance(decision, Additions) else []
        (subject, *lines), allowed = report(pod, decision, added), True
    return Explained((subject, *_nobody_asked(document.get("metadata")), *lines), allowed)


def _nobody_asked(metadata: object) -> Iterator[str]:
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    if namespace in NEVER:
        yield f"  not asked: API servers of Kubernetes 1.21 and newer send no review about pods of {namespace}; an older one:"


def _namespace(document: Mapping[str, Any]) -> Namespace:
    metadata = _mapping(document, "metadata")
    labels = {key: str(value) for key, value in _mapping(metadata, "labels").items()}
    return Namespace(str(metadata.get("name", "")), switch(labels, "namespace"))


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
                "(kubectl get pod -o yaml), and the Namespace if that is labelled"
            )


def _name(metadata: object) -> str:
    """Name a pod that could not be read, as far as it says its name."""
    told = metadata if isinstance(metadata, dict) else {}
    return f"{told.get('namespace') or 'default'}/{told.get('name') or 'without a name'}"
