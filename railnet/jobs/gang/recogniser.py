"""The gang of a pod: what its labels and annotations say of it, in the words of the article and of schedulers that know gangs.

The webhook, the controllers and `railnet train top` ask here, so that they mean the same gang. The first row of `SPELLINGS` that a pod
has counts, so labels come before annotations, and the article's label first.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from railnet.errors import Misconfigured
from railnet.jobs.gang import gang_constraint
from railnet.jobs.gang.gang_constraint import CONSTRAINT
from railnet.jobs.gang.node_terms import Comparison, NodeTerm, Requirement
from railnet.jobs.gang.request import Constraint, GangRequest
from railnet.jobs.railnet_labels import SIZE
from railnet.objects.pod import Pod

GATE = "railnet.io/gang"  # the scheduling gate of a pod that waits for its gang; a namespace's label of this name may be "off"
OFF = "off"
PLACEMENT = "railnet.io/placement"  # annotation that the controller writes: where the gang was placed, JSON

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAX_NAME = 253  # the name of a PodGroup, which an annotation may hold, is a DNS subdomain
_MAX_MEMBERS = 1_000_000
_Said = TypeVar("_Said", int, Constraint)


@dataclass(frozen=True, slots=True)
class Spelling:
    """The keys by which one project writes a gang to a pod.

    Attributes:
        name: the key of the gang's name.
        least: the key of the number of members that must start together; empty if the project keeps it in an object of its own.
        annotated: whether both are annotations; else they are labels.
    """

    name: str
    least: str = ""
    annotated: bool = False


_SIGS = "pod-group.scheduling.sigs.k8s.io"
_X = "pod-group.scheduling.x-k8s.io"
_KOORDINATOR = "gang.scheduling.koordinator.sh"
_VOLCANO_LEAST = "scheduling.volcano.sh/group-min-member"
# Sources: aliyun ACK "Topology-aware scheduling"; kubernetes-sigs/scheduler-plugins, pkg/coscheduling and its CHANGELOG;
# koordinator-sh/koordinator, apis/extension/coscheduling.go; volcano-sh/apis, pkg/apis/scheduling/v1beta1/labels.go
SPELLINGS = (
    Spelling(f"{_SIGS}/name", f"{_SIGS}/min-available"),
    Spelling(_SIGS, f"{_SIGS}/min-available"),
    Spelling("scheduling.x-k8s.io/pod-group"),
    Spelling(f"{_X}/name", f"{_X}/min-available"),
    Spelling(f"{_KOORDINATOR}/name", f"{_KOORDINATOR}/min-available", annotated=True),
    Spelling("scheduling.k8s.io/group-name", _VOLCANO_LEAST, annotated=True),
    Spelling("scheduling.volcano.sh/group-name", _VOLCANO_LEAST, annotated=True),
)
_LEAST = SPELLINGS[0].least  # also with a spelling that has no number of its own


def gang_request(pod: Pod) -> GangRequest | None:
    """Return what a pod says of its gang; None if it names none, also with the annotation of a constraint.

    Raises:
        Misconfigured: a label or annotation of its gang is malformed. The message names it, and what to write.
    """
    spelling = _spelling(pod)
    if spelling is None:
        return None
    constraint = pod.annotations.get(CONSTRAINT)
    return GangRequest(
        name=_name(spelling, _texts(pod, spelling)[spelling.name]),
        min_available=_min_available(pod, spelling),
        constraint=None if constraint is None else gang_constraint.constraint(constraint),
    )


def gang_name(pod: Pod) -> str:
    """Return the gang that a pod names as it stands there, also if it is malformed; empty if it names none."""
    spelling = _spelling(pod)
    return "" if spelling is None else _texts(pod, spelling)[spelling.name]


def names_gang(pod: Pod) -> bool:
    """Return whether a pod names a gang, also if what it says of it is malformed."""
    return _spelling(pod) is not None


def agreed(requests: Iterable[tuple[str, GangRequest]]) -> GangRequest | None:
    """Return what the members of one gang say together, each with its pod's name; None without members.

    A member that says nothing of a number or a constraint contradicts no other. The name of a constraint is its author's, and is not
    compared.

    Raises:
        Misconfigured: two members contradict each other. The message has both values and both pods.
    """
    members = sorted(requests, key=lambda member: member[0])
    if not members:
        return None
    name = members[0][1].name
    least = _one_value(f"gang {name}", "min-available", ((pod, request.min_available) for pod, request in members))
    constraint = _one_value(
        f"gang {name}",
        CONSTRAINT,
        ((pod, request.constraint and replace(request.constraint, name="")) for pod, request in members),
    )
    names = (request.constraint.name for _, request in members if request.constraint is not None)
    return GangRequest(name, least, constraint and replace(constraint, name=next(names)))


def described(constraint: Constraint) -> str:
    """Return a constraint in words: `in one kubernetes.io/hostname, on nodes with test=abc`."""
    parts = [
        f"in one {' and one '.join(constraint.required)}" if constraint.required else "",
        f"preferably in one {', else in one '.join(constraint.preferred)}" if constraint.preferred else "",
        f"on nodes with {' or '.join(map(_term, constraint.nodes))}" if constraint.nodes else "",
        "" if constraint.relax_after is None else f"spread after {constraint.relax_after:g} s",
    ]
    return ", ".join(filter(None, parts)) or "on any nodes"


def _term(term: NodeTerm) -> str:
    return " and ".join(map(_requirement, term.requirements))


def _requirement(requirement: Requirement) -> str:
    values = ", ".join(requirement.values)
    if requirement.comparison is Comparison.IN and len(requirement.values) == 1:
        return f"{requirement.key}={values}"
    return " ".join(filter(None, (requirement.key, requirement.comparison.value, values and f"({values})")))


def _spelling(pod: Pod) -> Spelling | None:
    return next((spelling for spelling in SPELLINGS if spelling.name in _texts(pod, spelling)), None)


def _texts(pod: Pod, spelling: Spelling) -> Mapping[str, str]:
    return pod.annotations if spelling.annotated else pod.labels


def _name(spelling: Spelling, text: str) -> str:
    if not _NAME.fullmatch(text) or len(text) > _MAX_NAME:
        raise Misconfigured(
            f"{spelling.name} is {text!r:.80}; it should be the gang's name: letters, digits, '-', '_' and '.', at most {_MAX_NAME}. "
            "All members are in one namespace, so the name has no '/'"
        )
    return text


def _min_available(pod: Pod, spelling: Spelling) -> int | None:
    key, texts = spelling.least, _texts(pod, spelling)
    if key not in texts:
        key, texts = _LEAST, pod.labels
    text = texts.get(key)
    if text is None:
        return None
    least = int(text) if text.isascii() and text.isdecimal() and len(text) < len(str(_MAX_MEMBERS)) else 0
    if not least:
        raise Misconfigured(
            f'{key} is {text!r:.80}; it should be how many of the gang\'s pods must start together, such as "5"; without it, all pods of '
            "the job must"
        )
    size = _size(pod)
    if size is not None and least > size:
        raise Misconfigured(
            f"{key} is {least}, but {SIZE} says that the job has {size} pods, so the gang would wait for ever; write at most {size}"
        )
    return least


def _size(pod: Pod) -> int | None:
    """Return the size of the job if its author says it. The sizes that operators write count other things: processes, or the pods of one role."""
    text = pod.annotations.get(SIZE, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < len(str(_MAX_MEMBERS)) else None


def _one_value(gang: str, what: str, pod_values: Iterable[tuple[str, _Said | None]]) -> _Said | None:
    """Return the one value of all pods that have one."""
    first: tuple[str, _Said] | None = None
    for pod, value in pod_values:
        if value is None:
            continue
        if first is None:
            first = pod, value
        elif value != first[1]:
            raise Misconfigured(
                f"pods of {gang} contradict each other: {what} of pod {first[0]:.63} is {_shown(first[1])}, and of pod {pod:.63} "
                f"{_shown(value)}; give all pods of the gang the same"
            )
    return first and first[1]


def _shown(value: int | Constraint) -> str:
    return f"{described(value):.160}" if isinstance(value, Constraint) else str(value)
