"""What a pod is given, and why: the decision, before it becomes a patch."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from admission import annotation_keys, tf_config
from admission.environment import Variable, wanted
from admission.policy import Namespace, Policy, switch
from admission.short_names import shortened
from training.label_keys import JOB, NET1, RANK, ROLE
from training.operators import Default, Part
from training.pod import Container, Pod, count
from training.recogniser import Member, recognise
from vf.errors import Misconfigured, NotPermitted
from vf.network import DEFAULT, NETWORK_ANNOTATION, NoIpam

_MOST_VFS = 256  # more than any node has; bounds what a pod can make the scheduler and the node look at
_AUTO = "auto"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_LENGTH = 63  # k8s.io/apimachinery/pkg/util/validation: LabelValueMaxLength


@dataclass(frozen=True, slots=True)
class Untouched:
    """The pod stays as it is; `operator` made the pod; it is empty for a pod that was not asked about and for an unknown operator."""

    why: str
    operator: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Additions:
    """What a pod is given: only what it does not have yet, so nothing the second time.

    Attributes:
        member: what it is to its job.
        container: the name of the container that gets VFs and environment.
        why: why it gets anything, a clause.
        resource, vfs: how many VFs are added to its requests and limits; 0 where it asks for some itself, or needs none.
        variables: the environment that is set.
        replaced: the environment that had another value.
        labels: the labels that are set.
        kept: what was left as the pod has it, in words.
    """

    member: Member
    container: str
    why: str
    resource: str = ""
    vfs: int = 0
    variables: tuple[Variable, ...] = ()
    replaced: tuple[Variable, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()


Decision = Untouched | Additions


def decide(pod: Pod, namespace: Namespace, policy: Policy) -> Decision:
    """Decide what a pod is given.

    Raises:
        Misconfigured: a label or annotation is malformed, contradicts the pod, or names what does not exist.
        NotPermitted: its namespace may not have the VFs, use the network, or name the addresses that it asks for.
    """
    own = switch(pod.labels, "pod")
    off = _switched_off(pod, own, namespace)
    if off is not None:
        return Untouched(off)
    member = recognise(pod, partial(_served, policy=policy), _settled)
    if member is None:
        return Untouched("it has the labels of no training operator that is known here")
    asked = _asked(pod, policy)
    part, why = _verdict(member, pod, asked, namespace, labelled=own is True)
    if part is Part.APART:
        return _left(member, why)
    resource = _pool(pod, namespace, policy)
    if resource is None:
        return _left(member, "'limits' lets pods of its namespace have no VFs")
    vfs = _vfs(pod, asked, policy) if part is Part.TRAINS else 0
    if vfs and not pod.host_network:
        policy.networks.choose(namespace.name, pod.annotations, vfs)
    container = pod.containers[member.container]
    reachable = _reachable(pod, policy)
    variables = wanted(part) if reachable else ()
    return Additions(
        member=member,
        container=container.name,
        why=why,
        resource=resource,
        vfs=vfs if asked is None else 0,
        variables=tuple(variable for variable in variables if variable.name not in container.env),
        replaced=tuple(_renamed(member, pod, container)) if vfs and reachable else (),
        labels=dict(_labels(member, pod)),
        kept=tuple(_kept(container, variables, _asked_in_words(pod, policy))),
    )


def _left(member: Member, why: str) -> Untouched:
    return Untouched(f"{member} ({member.operator.name}): {why}", member.operator.name)


def _switched_off(pod: Pod, own: bool | None, namespace: Namespace) -> str | None:
    if pod.mirror:
        return "it stands for a static pod, which kubelet runs as its file says"
    if own is False:
        return f"its label {NET1} is false"
    if own is None and namespace.net1 is False:
        return f"the label {NET1} of its namespace is false"
    if pod.windows and own:
        raise Misconfigured(
            f'the pod is for Windows, where no node has a rail, and its label {NET1} is "true"; remove one of them'
        )
    return "it is for Windows, where no node has a rail" if pod.windows else None


def _served(container: Container, policy: Policy) -> bool:
    """Return whether a container has what it would be given: VFs, or what a launcher passes on."""
    if not container.resources.keys().isdisjoint(policy.resources):
        return True
    return all(container.env.get(variable.name) == variable.value for variable in wanted(Part.LAUNCHES))


def _settled(container: Container) -> bool:
    """Return whether a container sets all that a launcher passes on, to whatever."""
    return all(variable.name in container.env for variable in wanted(Part.LAUNCHES))


def _pool(pod: Pod, namespace: Namespace, policy: Policy) -> str | None:
    """Choose the resource to be given: the first that the namespace's limit lets its pods have; None if it lets none.

    Raises:
        NotPermitted: the pod asks for one that it may not have, or its label asks for any and there is none.
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


def _asked(pod: Pod, policy: Policy) -> int | None:
    """Count the VFs that the pod's containers, sidecars among them, ask for by themselves; None if none mentions them."""
    numbers = [number for _, number in _requests(pod, policy)]
    return sum(numbers) if numbers else None


def _asked_in_words(pod: Pod, policy: Policy) -> str:
    """Write what the pod's containers ask for by themselves; empty if it is nothing."""
    sums: Counter[str] = Counter()
    for resource, number in _requests(pod, policy):
        sums[resource] += number
    return " and ".join(f"{number} {resource}" for resource, number in sums.items() if number)


def _requests(pod: Pod, policy: Policy) -> Iterator[tuple[str, int]]:
    for container in (*pod.containers, *pod.sidecars):
        for resource, quantity in container.resources.items():
            if resource in policy.resources:
                yield resource, count(quantity)


def _verdict(member: Member, pod: Pod, asked: int | None, namespace: Namespace, *, labelled: bool) -> tuple[Part, str]:
    """Tell what part the pod takes, and why: after what its author says, then its role, its namespace, its GPUs."""
    if asked == 0:
        return Part.APART, "it asks for 0 VFs"
    if labelled:
        return Part.TRAINS, f"its label {NET1} is true"
    if asked:
        return Part.TRAINS, f"it asks for {asked} VF{'s' * (asked > 1)} itself"
    return _by_role(member, pod.containers[member.container], namespace)


def _by_role(member: Member, container: Container, namespace: Namespace) -> tuple[Part, str]:
    if member.part is Part.APART:
        return Part.APART, f"the role {member.role} takes no part in the exchange of data"
    if namespace.net1:
        return member.part, f"the label {NET1} of its namespace is true"
    if member.part is Part.LAUNCHES:
        return Part.APART, f"a launcher without GPUs; its environment is set where the namespace has the label {NET1}"
    return _by_default(member, container)


def _by_default(member: Member, container: Container) -> tuple[Part, str]:
    default, gpus = member.operator.default, container.gpus
    unless = f'label it, or its namespace, {NET1}: "true" if it needs a rail'
    if default is Default.NONE:
        return Part.APART, f"pods of {member.operator.name} get a rail only by label; {unless}"
    if not gpus:
        return Part.APART, f"container {container.name} asks for no GPUs; {unless}"
    if default is Default.GANG and (member.size or 1) == 1:
        return Part.APART, f"it is alone in its group; {unless}"
    return Part.TRAINS, f"container {container.name} asks for {gpus} GPU{'s' * (gpus > 1)}"


def _vfs(pod: Pod, asked: int | None, policy: Policy) -> int:
    """Count the VFs the pod has in the end."""
    text = pod.annotations.get(annotation_keys.VF)
    if asked is None:
        return 1 if text is None else _annotated(text, pod, policy)
    # What auto was when we asked may be another number now: webhooks add GPUs, and replicas of two configurations answer.
    if text not in (None, _AUTO) and _number(text) != asked:
        raise Misconfigured(
            f"{annotation_keys.VF} is {text}, but the pod's containers ask for {_asked_in_words(pod, policy)}; remove one of them"
        )
    return asked


def _annotated(text: str, pod: Pod, policy: Policy) -> int:
    if text != _AUTO:
        return _number(text)
    if policy.rails is None:
        raise Misconfigured(
            f"{annotation_keys.VF} is auto, but how many rails a node has is not known here: give a number, "
            "or have the administrator list the PFs under 'rails' in node.yaml"
        )
    return max(1, min(policy.rails, sum(container.gpus for container in pod.containers)))


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_VFS)) else 0
    if not 0 < number <= _MOST_VFS:
        raise Misconfigured(
            f'{annotation_keys.VF} is {text!r:.80}; it should be a number of VFs from 1 to {_MOST_VFS}, or "auto". '
            f'For none, label the pod {NET1}: "false"'
        )
    return number


def _reachable(pod: Pod, policy: Policy) -> bool:
    """Return whether an address on net1 can answer: not on the host's network, and not on a network without addresses."""
    network = policy.networks.by_name.get(pod.annotations.get(NETWORK_ANNOTATION, DEFAULT))
    return not (pod.host_network or (network is not None and isinstance(network.ipam, NoIpam)))


def _renamed(member: Member, pod: Pod, container: Container) -> Iterator[Variable]:
    """Give TF_CONFIG with names on net1, where the pod says that it is to have them and it has not."""
    before = container.env.get(tf_config.VARIABLE)
    if _rendezvous(pod) == "net1" and before is not None:
        after = tf_config.rewritten(before, member.job, pod.subdomain)
        if after != before:
            yield Variable(tf_config.VARIABLE, after)


def _rendezvous(pod: Pod) -> str:
    text = pod.annotations.get(annotation_keys.RENDEZVOUS, "eth0")
    if text not in ("eth0", "net1"):
        raise Misconfigured(f'{annotation_keys.RENDEZVOUS} is {text!r:.80}; it should be "eth0" or "net1"')
    return text


def _kept(container: Container, variables: tuple[Variable, ...], asked: str) -> Iterator[str]:
    names = [variable.name for variable in variables if variable.name in container.env]
    if names:
        yield f"kept {', '.join(names)} as the pod sets them"
    if container.env_from and len(names) < len(variables):
        yield "what is set here stands before the container's envFrom"
    if not variables:
        yield "no environment: there is no address on net1 that it could name"
    if asked:
        yield f"kept its request for {asked}"


def _labels(member: Member, pod: Pod) -> Iterator[tuple[str, str]]:
    for key, text in ((JOB, member.job), (ROLE, member.role), (RANK, member.dotted_rank)):
        value = _label_value(text)
        if value and key not in pod.labels:
            yield key, value


def _label_value(text: str) -> str | None:
    """Make a name the value of a label; controllers may have longer ones."""
    return shortened(text, _LABEL_LENGTH) if _LABEL_VALUE.fullmatch(text) else None
