"""The recogniser of training pods: find a pod's row in `operators.OPERATORS`, and read its job, role, rank and container."""

from collections.abc import Callable
from typing import NamedTuple

from railnet.errors import Misconfigured
from railnet.jobs import railnet_labels
from railnet.jobs.gpus import gpu_count
from railnet.jobs.operator_pod_fields import Field
from railnet.jobs.operators import OPERATORS, Operator, Part
from railnet.objects.pod import Container, Pod

# The container that kubectl uses by default; a service mesh sets the annotation when it puts its own container first.
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_FIRST_MARKS = frozenset(next(iter(operator.marks)) for operator in OPERATORS)  # each row has its first mark, at least
_MAX_NUMBER = 1_000_000  # no job has more pods; limits the digits of a number in a label


class RecognisedPod(NamedTuple):
    """A pod of a training job.

    Attributes:
        rank: its position among the job's pods of that role; empty if the pod does not contain it, or not yet.
        container: the position in `spec.containers` of the container that trains.
        part: the part in the job, from its role and from the GPUs it asks for.
        size: the number of the job's pods; None if the pod does not contain it. It is a hint, since operators count differently.
    """

    operator: Operator
    job: str
    role: str
    rank: tuple[int, ...]
    container: int
    part: Part
    size: int | None

    def __str__(self) -> str:
        """Return the member as the subject of a sentence: `worker 1 of mnist`."""
        rank = f" {self.dotted_rank}" if self.rank else ""
        return f"{self.role}{rank} of {self.job}"

    @property
    def dotted_rank(self) -> str:
        """The rank as a label's value, such as `2.1`."""
        return ".".join(map(str, self.rank))


def recognise(
    pod: Pod,
    has_additions: Callable[[Container], bool] = lambda _: False,
    sets_variables: Callable[[Container], bool] = lambda _: False,
) -> RecognisedPod | None:
    """Return the pod's place in its training job; None if no row of the table fits the pod.

    Args:
        pod: the pod.
        has_additions: whether a container has already what a review adds to the training container: its author or an earlier review
            has set it. Then this container trains, also if another webhook has since put its own container first.
        sets_variables: whether a container sets all variables that a review would add, to any values. Then this container trains if no
            other fact decides.

    Raises:
        Misconfigured: an annotation about the job is malformed, or names a container that the pod does not have.
    """
    operator = _operator(pod)
    if operator is None:
        return None
    position = _training_container(operator, pod, has_additions, sets_variables)
    container = pod.containers[position]
    role = _text(operator.role, pod, container)
    return RecognisedPod(
        operator=operator,
        job=_text(operator.job, pod, container),
        role=role,
        rank=_rank(operator, pod, container),
        container=position,
        part=_part(operator, role, pod, container),
        size=_size(operator, pod, container),
    )


def _operator(pod: Pod) -> Operator | None:
    if _FIRST_MARKS.isdisjoint(pod.labels):  # most pods of a cluster are of no training job
        return None
    for operator in OPERATORS:
        if _fits(operator, pod):
            return operator
    return None


def _fits(operator: Operator, pod: Pod) -> bool:
    labels = pod.labels
    for key, values in operator.marks.items():
        if not marked(labels.get(key), values):
            return False
    return not operator.named or any(container.name in _names(operator, pod) for container in pod.containers)


def marked(value: str | None, values: tuple[str, ...]) -> bool:
    """Return whether a label has a value that the mark permits; `values` is empty for any value."""
    return bool(value) and (not values or value in values)


def _training_container(
    operator: Operator,
    pod: Pod,
    has_additions: Callable[[Container], bool],
    sets_variables: Callable[[Container], bool],
) -> int:
    wanted = pod.annotations.get(railnet_labels.CONTAINER)
    if wanted is not None:
        return _annotated_container(wanted, pod)
    if len(pod.containers) == 1:
        return 0
    names, main = _names(operator, pod), pod.annotations.get(_DEFAULT_CONTAINER)
    facts: tuple[Callable[[Container], bool], ...] = (
        has_additions,
        lambda container: container.name in names,
        lambda container: gpu_count(container) > 0,
        lambda container: container.name == main,
        sets_variables,
    )
    positions = (position for fact in facts for position, container in enumerate(pod.containers) if fact(container))
    return next(positions, 0)


def _annotated_container(wanted: str, pod: Pod) -> int:
    names = [container.name for container in pod.containers]
    if wanted not in names:
        raise Misconfigured(
            f"{railnet_labels.CONTAINER} is {wanted!r:.80}; this pod's containers are: {', '.join(names)}"
        )
    return names.index(wanted)


def _names(operator: Operator, pod: Pod) -> list[str]:
    """Return the names that the training container may have."""
    return [name.format_map(pod.labels) if "{" in name else name for name in operator.containers]


def _rank(operator: Operator, pod: Pod, container: Container) -> tuple[int, ...]:
    texts = [field.read(pod, container) for field in operator.rank]
    numbers = [number for text in texts if text is not None for number in text.split(".")]
    whole = all(text is not None for text in texts) and all(_is_number(number) for number in numbers)
    return tuple(map(int, numbers)) if whole else ()


def _part(operator: Operator, role: str, pod: Pod, container: Container) -> Part:
    """Return the part of the role, with the pod's GPUs taken into account."""
    part = operator.roles.get(role, Part.TRAINS)
    if part is Part.LAUNCHES and operator.also_trains and operator.also_trains.read(pod, container):
        return Part.TRAINS
    if part in (Part.LAUNCHES, Part.WITH_GPUS) and gpu_count(container):
        return Part.TRAINS
    return Part.APART if part is Part.WITH_GPUS else part


def _size(operator: Operator, pod: Pod, container: Container) -> int | None:
    annotated = pod.annotations.get(railnet_labels.SIZE)
    if annotated is not None:
        if not _is_number(annotated) or int(annotated) == 0:
            raise Misconfigured(
                f"{railnet_labels.SIZE} is {annotated!r:.80}; it should be the number of the job's pods"
            )
        return int(annotated)
    text = operator.size and operator.size.read(pod, container)
    return int(text) if text and _is_number(text) else None


def _text(field: Field, pod: Pod, container: Container) -> str:
    return field.read(pod, container) or "unnamed"  # only a pod without an operator can lack it


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < len(str(_MAX_NUMBER))
