"""The decision about the pods of a file and of its jobs, in words: what a review would do, without an API server."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railnet.admission import railnet_annotations
from railnet.admission.decision import Additions, ClaimedVfs, Decision, FreePort, decide
from railnet.admission.explanation import report
from railnet.admission.gang import gang_decision, gang_explanation, gang_patch
from railnet.admission.patch import Operation, operations
from railnet.admission.review_configuration import Namespace, Policy, switch
from railnet.admission.webhook_scope import NEVER
from railnet.errors import Misconfigured, NotPermitted, NotReady
from railnet.jobs.gang.recogniser import GATE, OFF
from railnet.jobs.gpus import gpu_count
from railnet.jobs.host_port_choice import parse as host_ports_range
from railnet.jobs.job_pods import job_pods
from railnet.jobs.job_pods.pod_of_template import JobManifest, RenderedPod
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
    claimed: ClaimedVfs | None
    gangs: bool
    off: frozenset[str]


def explain(
    objects: Sequence[Mapping[str, Any]],
    policy: Policy,
    free_port: FreePort | None = None,
    claimed: ClaimedVfs | None = None,
    *,
    gangs: bool = False,
) -> Iterator[Explained]:
    """Yield an explanation of each pod of a file, and of each pod template of a job; a Namespace in the same file gives the labels of its pods'.

    Args:
        objects: those of the file, as `objects_of` returns them. Objects that make no pods, such as a Service, are passed over.
        policy: what a review adds.
        free_port: as of `decide`.
        claimed: as of `decide`; a pod for which it raises NotReady is explained without its claims, and a line says so.
        gangs: whether gangs are on in the cluster.

    Raises:
        Misconfigured: an object makes pods in a way that is not known.
    """
    pods: list[tuple[Mapping[str, Any], str]] = []
    namespaces: dict[str, Namespace] = {}
    off: set[str] = set()
    for document in objects:
        if document["kind"] == "Pod":
            pods.append((document, ""))
        elif document["kind"] == "Namespace":
            namespace, labels = _namespace(document)
            namespaces[namespace.name] = namespace
            off |= {namespace.name} if labels.get(GATE) == OFF else set()
        elif job_pods.makes_pods(document):
            pods += [(rendered.pod, _maker(document, rendered)) for rendered in job_pods.pods_of(document, objects)]
    cluster = _Cluster(policy, namespaces, free_port, claimed, gangs, frozenset(off))
    for document, maker in pods:
        yield _explained(document, cluster, maker)


def _maker(job: Mapping[str, Any], pod: RenderedPod) -> str:
    """Return what makes a pod, and how many like it."""
    count = (
        "one on each node"
        if pod.replicas is None
        else f"{pod.replicas} {'pod' if pod.replicas == 1 else 'pods'} like this"
    )
    return f"  made by:   {JobManifest(job)}, {count}{f'; {pod.note}' if pod.note else ''}"


def _explained(document: Mapping[str, Any], cluster: _Cluster, maker: str) -> Explained:
    try:
        pod = parse(document)
        namespace = pod.namespace or "default"
        known = cluster.namespaces.get(namespace, Namespace(namespace))
        decision, of_claims = _decided(pod, known, cluster)
        added = operations(document, decision) if isinstance(decision, Additions) else []
        of_gang = list(_gang(pod, _annotated(document, added), cluster))
    except (Misconfigured, NotPermitted) as error:
        subject, allowed, lines = f"pod {_name(document.get('metadata'))}", False, [f"  denied: {error}"]
    else:
        (subject, *lines), allowed = report(pod, decision, added), True
        lines += [*of_claims, *_hint(pod, decision, cluster.policy), *of_gang]
    made_by = [maker] if maker else []
    return Explained((subject, *made_by, *_no_review(document.get("metadata")), *lines), allowed)


def _decided(pod: Pod, namespace: Namespace, cluster: _Cluster) -> tuple[Decision, list[str]]:
    """Decide as a review does, without claims that are not known; return lines about these, too."""
    try:
        return decide(pod, namespace, cluster.policy, cluster.free_port, cluster.claimed), []
    except NotReady as error:
        decision = decide(pod, namespace, cluster.policy, cluster.free_port)
        return decision, [f"  claims:    not counted: {error}"]


def _hint(pod: Pod, decision: Decision, policy: Policy) -> Iterator[str]:
    """Yield how a pod of many GPUs gets more rails than the one that it gets by default."""
    if not isinstance(decision, Additions) or not decision.vfs or railnet_annotations.VF in pod.annotations:
        return
    gpus = sum(map(gpu_count, pod.containers))
    most = gpus if policy.rails is None else min(gpus, policy.rails)
    if most > decision.vfs:
        wanted = f"{most}" if policy.rails is None else "auto"
        yield (
            f"  hint:      the pod has {gpus} GPUs and gets {decision.vfs} of a node's rails; with the annotation "
            f'{railnet_annotations.VF}: "{wanted}" in its pod template it gets {most}'
        )


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


def objects_of(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a file's documents, also those of Lists.

    Raises:
        Misconfigured: a document is no object of Kubernetes.
    """
    for document in documents:
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind == "List":
            items = document.get("items")
            if not isinstance(items, list | None):
                raise Misconfigured(f"the List's items are {items!r:.60}; they should be a list")
            yield from objects_of(items or ())
        elif kind in ("Pod", "Namespace") or (isinstance(kind, str) and isinstance(document.get("apiVersion"), str)):
            yield document
        elif document is not None:
            raise Misconfigured(
                f"the file has a document of kind {kind!r:.60} that is no object of Kubernetes; it should have a job, or Pods as their "
                "operator makes them (kubectl get pod -o yaml), each with apiVersion and kind, and their Namespace if it has labels of Railnet"
            )


def _name(metadata: object) -> str:
    """Return namespace and name of a pod that cannot be parsed, as far as they can be read."""
    known = metadata if isinstance(metadata, dict) else {}
    return f"{known.get('namespace') or 'default'}/{known.get('name') or 'without a name'}"
