"""A decision in words: the pod's annotation, warnings to the client that creates the pod, and lines of `railnet admission explain`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from railnet.admission import railnet_annotations, tf_config
from railnet.admission.decision import Additions, Decision, Untouched
from railnet.admission.host_network.host_network import HostNetwork
from railnet.jobs.net1_names import service
from railnet.objects.pod import Pod

MAX_ANNOTATION = 1024  # Kubernetes permits 256 KiB for all annotations of a pod together
_MAX_WARNINGS = 16  # the API server sends 4 KiB of warnings at most
MAX_WARNING = 256  # the API server truncates longer warnings


def annotation(additions: Additions, before: str | None) -> str:
    """Return the text of the annotation: what is added, and why.

    `before` is the text of an earlier review. It stays, and only what is added now follows it.
    """
    added = "; ".join(_clauses(additions))
    if before is not None:
        return f"{before}; then {added}"[:MAX_ANNOTATION]
    member = additions.member
    text = f"{member} ({member.operator.name}), {additions.reason}: {'; '.join((added, *additions.kept))}"
    return text[:MAX_ANNOTATION]


def report(pod: Pod, decision: Decision, operations: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines that say what a review does to a pod, and why."""
    yield f"pod {pod.namespace or 'default'}/{pod.name}"
    if isinstance(decision, Untouched):
        yield f"  rails:     nothing is added: {decision.reason}"
    else:
        yield from _reported(decision)
        yield from map(operation, operations)
    yield from (f"  warning: {text}" for text in warnings(pod, decision))


def _reported(additions: Additions) -> Iterator[str]:
    member = additions.member
    yield f"  operator:  {member.operator.name}"
    yield f"  member:    {member}, {'of unknown size' if member.size is None else f'of {member.size} pods'}"
    yield f"  container: {additions.container}"
    yield f"  because:   {additions.reason}"
    yield from (f"  kept:      {text}" for text in additions.kept)
    yield from (f"  done:      {text}" for text in list(_clauses(additions)) or ["nothing is missing"])


def warnings(pod: Pod, decision: Decision) -> tuple[str, ...]:
    """Return warnings: annotations of Railnet that have no effect, the Service that TF_CONFIG needs, and settings that hide the VFs."""
    ours = sorted(
        key
        for key in pod.annotations
        if key.startswith(railnet_annotations.PREFIX) and key not in railnet_annotations.WRITTEN
    )
    if isinstance(decision, Untouched):
        texts = [f"{key} has no effect on this pod: {decision.reason}" for key in ours]
    else:
        known = ", ".join(railnet_annotations.READ)
        texts = [
            f"{key} has no effect: this version reads only {known}"
            for key in ours
            if key not in railnet_annotations.READ
        ]
        if decision.replaced:
            name = service(decision.member.job)
            texts.append(
                f"{tf_config.VARIABLE} has names in Service {name}: create it, headless, with the pods' addresses on net1"
            )
    texts += decision.hidden
    more = len(texts) - _MAX_WARNINGS
    if more > 0:
        texts = [*texts[:_MAX_WARNINGS], f"{more} more warnings"]
    return tuple(f"{text:.{MAX_WARNING}}" for text in texts)


def _clauses(additions: Additions) -> Iterator[str]:
    if additions.vfs:
        yield f"added {additions.vfs} {additions.resource} to container {additions.container}"
    if additions.variables:
        names = ", ".join(variable.name for variable in additions.variables)
        yield f"set {names} in container {additions.container}"
    if additions.replaced:
        names = ", ".join(variable.name for variable in additions.replaced)
        yield f"changed {names} in container {additions.container} to names on net1"
    if additions.priority_class:
        yield f"set the PriorityClass {additions.priority_class}"
    if additions.host is not None:
        yield from _host_clauses(additions.container, additions.host)
    if additions.labels:
        yield f"labelled {', '.join(sorted(additions.labels))}"
    if additions.annotations:
        yield f"annotated {', '.join(sorted(additions.annotations))}, as the label of its namespace says"


def operation(step: Mapping[str, Any]) -> str:
    """Return an operation in one line; a removal has no value."""
    value = f": {json.dumps(step['value'], ensure_ascii=False)}" if "value" in step else ""
    return f"  {step['op']} {step['path']}{value}"


def _host_clauses(container: str, host: HostNetwork) -> Iterator[str]:
    yield f"put on the host's network with port {host.port}, as {host.name} of container {container}"
    names = ", ".join(variable.name for variable in (*host.added, *host.replaced))
    if names:
        yield f"wrote the port to {names}"
    if not host.resolves:
        yield "kept its dnsPolicy, with which names of Services may not resolve on the host's network"
    if host.fixed:
        ports = ", ".join(map(str, host.fixed))
        yield f"kept its other ports {ports}, so no two such pods run on one node"
