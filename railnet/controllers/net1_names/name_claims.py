"""Finds the pods that have a job's name. If several jobs of one namespace have the same name, the pods of the oldest job have it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from railnet.controllers.owners import Owners
from railnet.controllers.training_pod import Job, TrainingPod
from railnet.jobs.operators import OPERATORS
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.owner_reference import OwnerReference

_OF_SEVERAL_ROOTS = frozenset(row.name for row in OPERATORS if row.several_roots)
_UNKNOWN = "~"  # sorts after every time
_MOST_AGES = 16  # of roots that are asked for in one look: each of a thousand pods may name another one


class Claim(NamedTuple):
    """The pods of one job: those of one operator, and of one root unless their author says by labels what belongs together."""

    pods: list[TrainingPod]
    roots: set[OwnerReference | None]

    @property
    def owner(self) -> OwnerReference | None:
        """The object that all of them began with; None if there is no such object."""
        return next(iter(self.roots)) if len(self.roots) == 1 else None

    @property
    def about(self) -> InvolvedObject:
        """The object that an event about the job is written to."""
        first = self.pods[0]
        return first.involved if self.owner is None else self.owner.involved(first.job.namespace)


def claims(owners: Owners, job: Job, pods: Sequence[TrainingPod]) -> list[Claim]:
    """Return the claims of pods on their job's name, the oldest root's first; of very many, the oldest of those with the oldest pods.

    Raises:
        RequestFailed: the API server did not answer, so the roots are not known.
    """
    claims_by_key: dict[tuple[str, OwnerReference | None], Claim] = {}
    for pod in pods:
        root = None if pod.owner is None else owners.root(job.namespace, pod.owner)
        key = (pod.operator, None if pod.operator in _OF_SEVERAL_ROOTS else root)
        claim = claims_by_key.setdefault(key, Claim([], set()))
        claim.pods.append(pod)
        claim.roots.add(root)
    if len(claims_by_key) <= 1:
        return list(claims_by_key.values())
    by_pods = sorted(claims_by_key.values(), key=lambda claim: min(pod.created or _UNKNOWN for pod in claim.pods))
    oldest = sorted(by_pods[:_MOST_AGES], key=lambda claim: min(_ages(owners, job, claim)))
    return [*oldest, *by_pods[_MOST_AGES:]]


def _ages(owners: Owners, job: Job, claim: Claim) -> Iterator[tuple[str, str]]:
    for root in claim.roots:
        if root is None:
            yield _UNKNOWN, claim.pods[0].uid
        else:
            yield owners.created(job.namespace, root) or _UNKNOWN, root.uid
