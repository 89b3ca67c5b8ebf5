"""The decision about one pod: what is added to it, and why.

Pure: a pod, its namespace and the policy in, a decision out. Not here: the JSON Patch (`railnet.admission.patch`), the words for the pod's
author (`railnet.admission.explanation`), and what host-network mode changes (`railnet.admission.host_network.host_network`).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from railnet.admission import railnet_annotations, tf_config
from railnet.admission.environment import EVERY_HCA, Variable, wanted
from railnet.admission.host_network import host_network
from railnet.admission.host_network.host_network import HostNetwork
from railnet.admission.review_configuration import Namespace, Policy, switch
from railnet.errors import Misconfigured, NotPermitted, NotReady
from railnet.jobs.gpus import gpu_count
from railnet.jobs.hiding_settings import hiding, hiding_variables, is_other_rdma
from railnet.jobs.name_truncation import shortened
from railnet.jobs.operators import Default, Part
from railnet.jobs.railnet_labels import JOB, NET1, RANK, ROLE
from railnet.jobs.recogniser import RecognisedPod, recognise
from railnet.objects.pod import Container, Pod
from railnet.objects.quantity import count
from railnet.vf.permitted_networks import (
    ADDRESS_ANNOTATION,
    DEFAULT,
    NETWORK_ANNOTATION,
    STICKY_ANNOTATION,
    NoIpam,
    is_sticky,
)

_MAX_VFS = 256  # more than any node has; limits the work that one pod can cause in the scheduler and on the node
_AUTO = "auto"
_GPU = "nvidia.com/gpu"  # stands for a GPU of any kind
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_LENGTH = 63  # k8s.io/apimachinery/pkg/util/validation: LabelValueMaxLength

FreePort = Callable[[Pod], int]
"""Returns a host port for a pod that no other pod has. Raises NotReady: there is none now."""

ClaimedVfs = Callable[[Pod], int]
"""Returns how many VFs a pod asks for by ResourceClaims. Raises NotReady: that is not known now."""


@dataclass(frozen=True, slots=True)
class Untouched:
    """The pod stays as it is.

    Attributes:
        reason: why, a clause.
        operator: the name of the operator that made the pod; empty if the operator is unknown or was not looked for.
        why: of a recognised pod, the reason without its name.
        hidden: settings of a launcher that keep the ranks which it starts from their VFs, in clauses.
    """

    reason: str
    operator: str = field(default="", compare=False)
    why: str = field(default="", compare=False)
    hidden: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Additions:
    """The additions to a pod. A pod that has everything already gets nothing, so a second review adds nothing.

    Attributes:
        member: the pod's place in its training job.
        container: the name of the container that gets VFs and environment.
        reason: why the pod gets anything, a clause.
        resource, vfs: how many VFs are added to the container's requests and limits; 0 if the pod asks for VFs itself, or needs none.
        variables: the environment variables that are added.
        replaced: the environment variables that get another value.
        annotations: the annotations that are added, beside the explanation.
        priority_class: the PriorityClass that the pod gets; empty if it has one, or if none is configured.
        kept: what stays as the pod has it, in clauses.
        host: what the pod gets with the host's network; None if it stays in its own network, or has the host's already.
        hidden: its own settings that keep its programs from its VFs, in clauses.
    """

    member: RecognisedPod
    container: str
    reason: str
    resource: str = ""
    vfs: int = 0
    variables: tuple[Variable, ...] = ()
    replaced: tuple[Variable, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    kept: tuple[str, ...] = ()
    host: HostNetwork | None = None
    hidden: tuple[str, ...] = ()


Decision = Untouched | Additions


def decide(
    pod: Pod, namespace: Namespace, policy: Policy, free_port: FreePort | None = None, claimed: ClaimedVfs | None = None
) -> Decision:
    """Decide what is added to a pod.

    `free_port` is None if host-network mode is switched off; `claimed` is None where claims are not known: they then ask for no VF.

    Raises:
        Misconfigured: a label or annotation is malformed, contradicts the pod, or names an object that does not exist.
        NotPermitted: the pod's namespace may not have the VFs, use the network, or name the addresses that the pod asks for.
        NotReady: no host port is free for the pod now, or what its claims ask for is not known now.
    """
    label = switch(pod.labels, "pod")
    off = _switched_off(pod, label, namespace)
    if off is not None:
        return Untouched(off)
    member = recognise(pod, partial(_has_additions, policy=policy), _sets_forwarded_variables)
    if member is None:
        return Untouched("its labels match no training operator that Railnet knows")
    on_host = host_network.wanted(pod, member, switched_on=free_port is not None)
    # As a second review sees it: so both decide the same about rails.
    as_reviewed = pod._replace(host_network=pod.host_network or on_host)
    by_claims = 0 if claimed is None or not pod.claims else _by_claims(as_reviewed, member, namespace, policy, claimed)
    decision = _rail(as_reviewed, member, namespace, policy, by_claims, labelled=label is True)
    if not on_host or free_port is None:
        return decision
    host = host_network.decided(pod, member, free_port(pod))
    if isinstance(decision, Additions):
        return replace(decision, host=host)
    container = pod.containers[member.container].name
    return Additions(member, container, decision.why, labels=dict(_labels(member, pod)), host=host)


def _by_claims(pod: Pod, member: RecognisedPod, namespace: Namespace, policy: Policy, claimed: ClaimedVfs) -> int:
    """Return how many VFs a pod asks for by claims; 0 if that is not known, and the pod would get no VF even if its claims were of GPUs.

    Raises:
        NotReady, NotPermitted: as `decide`.
    """
    try:
        return claimed(pod)
    except NotReady:
        if _is_left_alone(_with_gpu(pod, member), member, namespace, policy):
            return 0
        raise


def _is_left_alone(pod: Pod, member: RecognisedPod, namespace: Namespace, policy: Policy) -> bool:
    labelled = switch(pod.labels, "pod") is True
    part, _ = _part(member, pod, _requested(pod, policy), namespace, labelled=labelled)
    return part is Part.APART or _resource(pod, namespace, policy) is None


def _with_gpu(pod: Pod, member: RecognisedPod) -> Pod:
    """Return a pod whose training container asks for a GPU: what it asks for by claims may be GPUs."""
    containers = list(pod.containers)
    container = containers[member.container]
    containers[member.container] = container._replace(resources={**container.resources, _GPU: "1"})
    return pod._replace(containers=tuple(containers))


def _rail(
    pod: Pod, member: RecognisedPod, namespace: Namespace, policy: Policy, by_claims: int, *, labelled: bool
) -> Decision:
    """Decide about VFs and the environment that names net1. `by_claims` is how many VFs the pod asks for by claims."""
    requested, requests = _requested(pod, policy), _requests_text(pod, policy, by_claims)
    if by_claims:
        requested = by_claims + (requested or 0)
    part, reason = _part(member, pod, requested, namespace, labelled=labelled)
    if part is Part.APART:
        return replace(_untouched(member, reason), hidden=tuple(_hidden_from_ranks(pod, member, policy)))
    resource = _resource(pod, namespace, policy)
    if resource is None:
        return _untouched(member, "'limits' lets pods of its namespace have no VFs")
    vfs = _vfs(pod, requested, requests, policy) if part is Part.TRAINS else 0
    annotations = _annotations(member, pod, namespace) if vfs and not pod.host_network else {}
    after = {**pod.annotations, **annotations}
    if vfs and not pod.host_network:
        _check_sticky(member, after)
        policy.networks.choose(namespace.name, after, vfs)
    container = pod.containers[member.container]
    reachable = _reachable(pod, after, policy)
    unnamed = _unnamed(pod, policy, reachable=reachable)
    variables = _every_hca(pod, container, policy) if unnamed else wanted(part)
    return Additions(
        member=member,
        container=container.name,
        reason=reason,
        resource=resource,
        vfs=vfs if requested is None else 0,
        variables=tuple(variable for variable in variables if variable.name not in container.env),
        replaced=tuple(_renamed(member, pod, container)) if vfs and reachable else (),
        labels=dict(_labels(member, pod)),
        annotations=annotations,
        priority_class=(policy.priority_class or "") if pod.priority_class is None else "",
        kept=(*_kept(container, variables, unnamed, requests), *_kept_class(pod, policy)),
        hidden=tuple(hiding(pod, container, policy.resources, net1=reachable)),
    )


def _untouched(member: RecognisedPod, reason: str) -> Untouched:
    return Untouched(f"{member} ({member.operator.name}): {reason}", member.operator.name, reason)


def _hidden_from_ranks(pod: Pod, member: RecognisedPod, policy: Policy) -> Iterator[str]:
    """Yield what a launcher without a VF sets for its ranks: it does not know whether these have VFs."""
    if member.part is Part.LAUNCHES:
        net1 = _reachable(pod, pod.annotations, policy)
        for clause in hiding_variables(pod.containers[member.container], net1=net1):
            yield f"for ranks that have a VF: {clause}"


def _switched_off(pod: Pod, label: bool | None, namespace: Namespace) -> str | None:
    if pod.mirror:
        return "it mirrors a static pod, and kubelet runs that pod from its file"
    if label is False:
        return f"its label {NET1} is false"
    if label is None and namespace.net1 is False:
        return f"the label {NET1} of its namespace is false"
    if pod.windows and label:
        raise Misconfigured(
            f'the pod is for Windows, where no node has a rail, and its label {NET1} is "true"; remove one of them'
        )
    return "it is for Windows, where no node has a rail" if pod.windows else None


def _has_additions(container: Container, policy: Policy) -> bool:
    """Return whether a container has what the training container gets: VFs, or the variables that a launcher forwards."""
    if not container.resources.keys().isdisjoint(policy.resources):
        return True
    return all(container.env.get(variable.name) == variable.value for variable in wanted(Part.LAUNCHES))


def _sets_forwarded_variables(container: Container) -> bool:
    """Return whether a container sets all variables that a launcher forwards, to any value."""
    return all(variable.name in container.env for variable in wanted(Part.LAUNCHES))


def _resource(pod: Pod, namespace: Namespace, policy: Policy) -> str | None:
    """Choose the resource for the VFs: the first that the namespace's limit permits; None if it permits none.

    Raises:
        NotPermitted: the pod asks for a resource that its namespace may not have, or the pod's label asks for a rail and no resource is
            permitted.
    """
    mentioned = {resource for container in (*pod.containers, *pod.sidecars) for resource in container.resources}
    policy.networks.permit(namespace.name, mentioned.intersection(policy.resources))
    for resource in policy.resources:
        with suppress(NotPermitted):
            policy.networks.permit(namespace.name, (resource,))
            return resource
    if switch(pod.labels, "pod"):
        policy.networks.permit(namespace.name, policy.resources)
    return None


def _requested(pod: Pod, policy: Policy) -> int | None:
    """Return how many VFs the pod's containers and sidecars ask for; None if no container mentions VFs."""
    numbers = [number for _, number in _requests(pod, policy)]
    return sum(numbers) if numbers else None


def _requests_text(pod: Pod, policy: Policy, by_claims: int) -> str:
    """Return the VFs that the pod asks for, in words; empty if it asks for none."""
    sums: Counter[str] = Counter()
    for resource, number in _requests(pod, policy):
        sums[resource] += number
    sums["by ResourceClaims"] = by_claims
    return " and ".join(f"{number} {resource}" for resource, number in sums.items() if number)


def _requests(pod: Pod, policy: Policy) -> Iterator[tuple[str, int]]:
    for container in (*pod.containers, *pod.sidecars):
        for resource, quantity in container.resources.items():
            if resource in policy.resources:
                yield resource, count(quantity)


def _part(
    member: RecognisedPod, pod: Pod, requested: int | None, namespace: Namespace, *, labelled: bool
) -> tuple[Part, str]:
    """Return what part the pod takes, and the reason.

    The pod's own request and label count first, then its role, its namespace's label, and its GPUs.
    """
    if requested == 0:
        return Part.APART, "it asks for 0 VFs"
    if labelled:
        return Part.TRAINS, f"its label {NET1} is true"
    if requested:
        return Part.TRAINS, f"it asks for {requested} VF{'s' * (requested > 1)} itself"
    if host_network.is_of_author(pod):
        return (
            Part.APART,
            f"its author put it on the host's network, with the host's own HCAs; label it {NET1}: \"true\" if it needs a VF",
        )
    return _by_role(member, pod.containers[member.container], namespace)


def _by_role(member: RecognisedPod, container: Container, namespace: Namespace) -> tuple[Part, str]:
    if member.part is Part.APART:
        return Part.APART, f"the role {member.role} takes no part in the exchange of data"
    if namespace.net1:
        return member.part, f"the label {NET1} of its namespace is true"
    if member.part is Part.LAUNCHES:
        return Part.APART, f"a launcher without GPUs; its environment is set where the namespace has the label {NET1}"
    return _by_default(member, container)


def _by_default(member: RecognisedPod, container: Container) -> tuple[Part, str]:
    default, gpus = member.operator.default, gpu_count(container)
    unless = f'label it, or its namespace, {NET1}: "true" if it needs a rail'
    if default is Default.NONE:
        return Part.APART, f"pods of {member.operator.name} get a rail only by label; {unless}"
    if not gpus:
        return Part.APART, f"container {container.name} asks for no GPUs; {unless}"
    if default is Default.GANG and (member.size or 1) == 1:
        return Part.APART, f"its group has one pod only; {unless}"
    return Part.TRAINS, f"container {container.name} asks for {gpus} GPU{'s' * (gpus > 1)}"


def _vfs(pod: Pod, requested: int | None, requests: str, policy: Policy) -> int:
    """Return how many VFs the pod has after the review. `requests` are those that it asks for, in words.

    Raises:
        Misconfigured: the annotation is malformed, or contradicts the pod's own request.
    """
    text = pod.annotations.get(railnet_annotations.VF)
    if requested is None:
        return 1 if text is None else _annotated(text, pod, policy)
    # An earlier review may have made the request for `auto`, and `auto` may mean another number now: another webhook adds GPUs, or
    # replicas with two configurations review one pod. So `auto` never contradicts a request.
    if text not in (None, _AUTO) and _number(text) != requested:
        raise Misconfigured(
            f"{railnet_annotations.VF} is {text}, but the pod's containers ask for {requests}; remove one of them"
        )
    return requested


def _annotated(text: str, pod: Pod, policy: Policy) -> int:
    if text != _AUTO:
        return _number(text)
    if policy.rails is None:
        raise Misconfigured(
            f"{railnet_annotations.VF} is auto, but the configuration does not say how many rails a node has: give a number in its place "
            "(in the file of railnet train, such as rails: 1), or have the administrator say it in node.yaml, by 'rails' as a list of "
            "PFs, or by 'ipam.rails' of network default"
        )
    return max(1, min(policy.rails, sum(map(gpu_count, pod.containers))))


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_VFS)) else 0
    if not 0 < number <= _MAX_VFS:
        raise Misconfigured(
            f'{railnet_annotations.VF} is {text!r:.80}; it should be a number of VFs from 1 to {_MAX_VFS}, or "auto". '
            f'For none, label the pod {NET1}: "false"'
        )
    return number


def _annotations(member: RecognisedPod, pod: Pod, namespace: Namespace) -> dict[str, str]:
    """Return the annotation that the namespace's label stands for: a pod that says otherwise, or has no rank, does not get it."""
    says = STICKY_ANNOTATION in pod.annotations or NETWORK_ANNOTATION in pod.annotations
    return {STICKY_ANNOTATION: "true"} if namespace.sticky and member.rank and not says else {}


def _check_sticky(member: RecognisedPod, annotations: Mapping[str, str]) -> None:
    """Make sure that a pod which asks for the address of its rank has a rank, and leaves the address to the controllers."""
    if not is_sticky(annotations):
        return
    if not member.rank:
        raise Misconfigured(
            f"{STICKY_ANNOTATION} is true, but {member} ({member.operator.name}) has no rank that an address could stay with; "
            f"give each pod a label {RANK}, or remove the annotation"
        )
    if ADDRESS_ANNOTATION in annotations:
        raise NotPermitted(
            f"{STICKY_ANNOTATION} is true, so railnet-controllers writes {ADDRESS_ANNOTATION}; remove one of the two annotations"
        )


def _reachable(pod: Pod, annotations: Mapping[str, str], policy: Policy) -> bool:
    """Return whether the pod has an address on net1: not if it uses the host's network, or a network without addresses."""
    if not pod.host_network and is_sticky(annotations):
        return True
    network = policy.networks.by_name.get(annotations.get(NETWORK_ANNOTATION, DEFAULT))
    return not (pod.host_network or (network is not None and isinstance(network.ipam, NoIpam)))


def _unnamed(pod: Pod, policy: Policy, *, reachable: bool) -> str:
    """Return why no variable names net1 in the pod, a clause; empty if variables do."""
    if not reachable:
        return "the pod has no address on net1"
    text = pod.annotations.get(railnet_annotations.ENVIRONMENT)
    if text not in (None, "true", "false"):
        raise Misconfigured(f'{railnet_annotations.ENVIRONMENT} is {text!r:.80}; it should be "true" or "false"')
    if text is None:
        return "" if policy.environment else "admission.environment of node.yaml is false"
    return "" if text == "true" else f"{railnet_annotations.ENVIRONMENT} is false"


def _every_hca(pod: Pod, container: Container, policy: Policy) -> tuple[Variable, ...]:
    """Return the variables for a pod that could use more HCAs of its host than its VF: its author put it on the host's network for them."""
    others = any(name not in policy.resources and is_other_rdma(name) for name in container.resources)
    return EVERY_HCA if host_network.is_of_author(pod) and (container.privileged or others) else ()


def _renamed(member: RecognisedPod, pod: Pod, container: Container) -> Iterator[Variable]:
    """Yield TF_CONFIG with names on net1, if the pod asks for these names and does not have them yet."""
    before = container.env.get(tf_config.VARIABLE)
    if _rendezvous(pod) == "net1" and before is not None:
        after = tf_config.rewritten(before, member.job, pod.subdomain)
        if after != before:
            yield Variable(tf_config.VARIABLE, after)


def _rendezvous(pod: Pod) -> str:
    text = pod.annotations.get(railnet_annotations.RENDEZVOUS, "eth0")
    if text not in ("eth0", "net1"):
        raise Misconfigured(f'{railnet_annotations.RENDEZVOUS} is {text!r:.80}; it should be "eth0" or "net1"')
    return text


def _kept(container: Container, variables: tuple[Variable, ...], unnamed: str, requests: str) -> Iterator[str]:
    names = [variable.name for variable in variables if variable.name in container.env]
    if names:
        yield f"kept {', '.join(names)} as the pod sets them"
    if container.env_from and len(names) < len(variables):
        yield "the added variables take precedence over the container's envFrom"
    if unnamed and not variables:
        yield f"set no variables, because {unnamed}"
    if requests:
        yield f"kept its request for {requests}"


def _kept_class(pod: Pod, policy: Policy) -> Iterator[str]:
    if policy.priority_class and pod.priority_class:
        yield f"kept its PriorityClass {pod.priority_class}"


def _labels(member: RecognisedPod, pod: Pod) -> Iterator[tuple[str, str]]:
    for key, text in ((JOB, member.job), (ROLE, member.role), (RANK, member.dotted_rank)):
        value = _label_value(text)
        if value and key not in pod.labels:
            yield key, value


def _label_value(text: str) -> str | None:
    """Return a name as a label's value, shortened if it is too long; None if a label cannot have it."""
    return shortened(text, _LABEL_LENGTH) if _LABEL_VALUE.fullmatch(text) else None
