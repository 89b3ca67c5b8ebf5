"""Which training job a pod belongs to: reads `operators.OPERATORS` on one pod."""

from collections.abc import Callable
from dataclasses import dataclass

from training import label_keys
from training.fields import Source
from training.operators import OPERATORS, Operator, Part
from training.pod import Container, Pod
from vf.errors import Misconfigured

# The container that kubectl chooses by default; service meshes set it when they put a container of theirs first.
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_LARGEST = 1_000_000  # a position or a number of pods beyond it is no such thing; bounds what a label can make us count


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a training job.

    Attributes:
        rank: its position among the job's pods of that role; empty where the pod does not tell, or not yet.
        container: the position in `spec.containers` of the one that trains.
        part: what it does, after what its role says and whether it asks for GPUs.
        size: of how many pods the job is; None where the pod does not tell. A hint: operators count differently.
    """

    operator: Operator
    job: str
    role: str
    rank: tuple[int, ...]
    container: int
    part: Part
    size: int | None

    def __str__(self) -> str:
        """Write it as a sentence's subject: `worker 1 of mnist`."""
        rank = f" {self.dotted_rank}" if self.rank else ""
        return f"{self.role}{rank} of {self.job}"

    @property
    def dotted_rank(self) -> str:
        """Write the rank as it stands in a label."""
        return ".".join(map(str, self.rank))


def recognise(
    pod: Pod, served: Callable[[Container], bool], settled: Callable[[Container], bool] = lambda _: False
) -> Member | None:
    """Tell what a pod is to a training job; None if it is of none.

    Args:
        pod: the pod.
        served: whether a container has already what the one that trains is given, by its author or by an earlier review.
            Then it is the one, wherever other webhooks have put containers of theirs since.
        settled: whether a container has of all that something, perhaps something else, so that it would be given nothing. Then
            it is the one where nothing else tells.

    Raises:
        Misconfigured: an annotation about the job is malformed, or names a container that is not there.
    """
    operator = next((row for row in OPERATORS if _is_by(row, pod)), None)
    if operator is None:
        return None
    position = _training_container(operator, pod, served, settled)
    container = pod.containers[position]
    role = _said(operator.role, pod, container)
    return Member(
        operator=operator,
        job=_said(operator.job, pod, container),
        role=role,
        rank=_rank(operator, pod, container),
        container=position,
        part=_part(operator, role, pod, container),
        size=_size(operator, pod, container),
    )


def _is_by(operator: Operator, pod: Pod) -> bool:
    if not all(marked(pod.labels.get(key), values) for key, values in operator.marks.items()):
        return False
    return not operator.named or _by_name(operator, pod) is not None


def marked(value: str | None, values: tuple[str, ...]) -> bool:
    """Return whether a label's value is one that a mark may have."""
    return bool(value) and (not values or value in values)


def _training_container(
    operator: Operator, pod: Pod, served: Callable[[Container], bool], settled: Callable[[Container], bool]
) -> int:
    wanted = pod.annotations.get(label_keys.CONTAINER)
    if wanted is not None:
        return _annotated(wanted, pod)
    main = pod.annotations.get(_DEFAULT_CONTAINER)
    candidates = (
        _first(pod, served),
        _by_name(operator, pod),
        _first(pod, lambda container: container.gpus > 0),
        _first(pod, lambda container: container.name == main),
        _first(pod, settled),
    )
    return next((position for position in candidates if position is not None), 0)


def _annotated(wanted: str, pod: Pod) -> int:
    names = [container.name for container in pod.containers]
    if wanted not in names:
        raise Misconfigured(f"{label_keys.CONTAINER} is {wanted!r:.80}; this pod's containers are: {', '.join(names)}")
    return names.index(wanted)


def _by_name(operator: Operator, pod: Pod) -> int | None:
    names = [name.format_map(pod.labels) for name in operator.containers]
    return _first(pod, lambda container: container.name in names)


def _rank(operator: Operator, pod: Pod, container: Container) -> tuple[int, ...]:
    texts = [source.read(pod, container) for source in operator.rank]
    numbers = [number for text in texts if text is not None for number in text.split(".")]
    whole = all(text is not None for text in texts) and all(_is_number(number) for number in numbers)
    return tuple(map(int, numbers)) if whole else ()


def _part(operator: Operator, role: str, pod: Pod, container: Container) -> Part:
    """Settle what its role leaves open."""
    part = operator.roles.get(role, Part.TRAINS)
    if part is Part.LAUNCHES and operator.also_trains and operator.also_trains.read(pod, container):
        return Part.TRAINS
    if part in (Part.LAUNCHES, Part.WITH_GPUS) and container.gpus:
        return Part.TRAINS
    return Part.APART if part is Part.WITH_GPUS else part


def _size(operator: Operator, pod: Pod, container: Container) -> int | None:
    annotated = pod.annotations.get(label_keys.SIZE)
    if annotated is not None:
        if not _is_number(annotated) or int(annotated) == 0:
            raise Misconfigured(f"{label_keys.SIZE} is {annotated!r:.80}; it should be the number of the job's pods")
        return int(annotated)
    text = operator.size and operator.size.read(pod, container)
    return int(text) if text and _is_number(text) else None


def _said(source: Source, pod: Pod, container: Container) -> str:
    return source.read(pod, container) or "unnamed"  # only a pod with the label may leave it out


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < len(str(_LARGEST))


def _first(pod: Pod, fits: Callable[[Container], bool]) -> int | None:
    return next((position for position, container in enumerate(pod.containers) if fits(container)), None)
