"""The decision about the pods of a file, in words: what a review would do, without an API server."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from railnet.admission import gang_decision, gang_explanation, gang_patch
from railnet.admission.decision import Additions, FreePort, decide
from railnet.admission.explanation import report
from railnet.admission.patch import Operation, operations
from railnet.admission.review_configuration import Namespace, Policy, switch
from railnet.admission.webhook_scope import NEVER
from railnet.errors import Misconfigured, NotPermitted
from railnet.jobs.gang_recogniser import GATE, OFF
from railnet.jobs.host_port_choice import parse as host_ports_range
from railnet.objects.pod import Pod, parse
from railnet.vf.permitted_networks import is_sticky

_ANNOTATIONS = "/metadata/annotations"


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


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The cluster of an explanation: `gangs` says whether gangs are on; `off` names namespaces where they are off."""

    policy: Policy
    namespaces: Mapping[str, Namespace]
    free_port: FreePort | None
    gangs: bool
    off: frozenset[str]


def explain(
    documents: Iterable[Any], policy: Policy, free_port: FreePort | None = None, *, gangs: bool = False
) -> Iterator[Explained]:
    """Yield an explanation of each pod of a file; a Namespace in the same file gives the labels of its pods' namespace.

    `gangs` says whether gangs are on in the cluster.

    Raises:
        Misconfigured: a document is not a Pod, a Namespace, or a List of these.
    """
    pods: list[Mapping[str, Any]] = []
    namespaces: dict[str, Namespace] = {}
    off: set[str] = set()
    for document in _flat(documents):
        if document["kind"] == "Pod":
            pods.append(document)
        else:
            namespace, labels = _namespace(document)
            namespaces[namespace.name] = namespace
            off |= {namespace.name} if labels.get(GATE) == OFF else set()
    cluster = _Cluster(policy, namespaces, free_port, gangs, frozenset(off))
    for document in pods:
        yield _explained(document, cluster)


def _explained(document: Mapping[str, Any], cluster: _Cluster) -> Explained:
    try:
        pod = parse(document)
        namespace = pod.namespace or "default"
        known = cluster.namespaces.get(namespace, Namespace(namespace))
        decision = decide(pod, known, cluster.policy, cluster.free_port)
        added = operations(document, decision) if isinstance(decision, Additions) else []
        of_gang = list(_gang(pod, _annotated(document, added), cluster))
    except (Misconfigured, NotPermitted) as error:
        subject, allowed, lines = f"pod {_name(document.get('metadata'))}", False, [f"  denied: {error}"]
    else:
        (subject, *lines), allowed = report(pod, decision, added), True
        lines += of_gang
    return Explained((subject, *_no_review(document.get("metadata")), *lines), allowed)


def _gang(pod: Pod, document: Mapping[str, Any], cluster: _Cluster) -> Iterator[str]:
    """Yield lines about the pod's gang; none if the pod says nothing of one."""
    if not gang_decision.mentions(pod):
        return
    if not cluster.gangs:
        yield "  gang:      none, so the pod does not wait: gangs are switched off; `railnet admission --gangs explain` says what they do"
        return
    decision = gang_decision.decide(pod, document, off=(pod.namespace or "default") in cluster.off)
    yield from gang_explanation.report(decision, gang_patch.operations(document, decision))


def _annotated(document: Mapping[str, Any], added: Iterable[Operation]) -> Mapping[str, Any]:
    """Return a pod with the annotations of the other review, which comes first."""
    metadata = document["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    for step in added:
        _, _, key = step["path"].partition(_ANNOTATIONS)
        if step["path"] == _ANNOTATIONS:
            annotations = step["value"]
        elif key:
            annotations[key.removeprefix("/").replace("~1", "/").replace("~0", "~")] = step["value"]
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def _no_review(metadata: object) -> Iterator[str]:
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    if namespace in NEVER:
        yield f"  no review: API servers send none for pods of {namespace}; one would have this result:"


def _namespace(document: Mapping[str, Any]) -> tuple[Namespace, Mapping[str, str]]:
    """Return a namespace, and its labels."""
    metadata = _mapping(document, "metadata")
    labels = {key: str(value) for key, value in _mapping(metadata, "labels").items()}
    return Namespace(str(metadata.get("name", "")), switch(labels, "namespace"), is_sticky(labels)), labels


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
                f"the file has a document of kind {kind!r:.60}; it should have Pods as their operator makes them (kubectl get pod -o yaml), or "
                "a job's pod template as a Pod (with apiVersion, kind and name), and their Namespace if it has labels of Railnet"
            )


def _name(metadata: object) -> str:
    """Return namespace and name of a pod that cannot be parsed, as far as they can be read."""
    known = metadata if isinstance(metadata, dict) else {}
    return f"{known.get('namespace') or 'default'}/{known.get('name') or 'without a name'}"
