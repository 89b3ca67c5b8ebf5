"""A stand-in for the controller of a training job: which pods the job needs next. Pure.

A pod that is missing is made, also after it was evicted or deleted; a pod that is being deleted keeps its name until it is gone. With
`in_order`, the pods of a role are made when all pods of the roles before it run, as KubeDL's workers wait for parameter servers
(`tests/stand_ins/tfjob_operator.py`), and an MPIJob's launcher for its workers.

Left out: status, back-off, the end of a job.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_STARTED = ("Running", "Succeeded")


@dataclass(frozen=True, slots=True)
class GangJob:
    """A job.

    Attributes:
        name: its name; a pod's name is that of the job, its role and its index.
        roles: how many pods each role has, in order.
        in_order: whether a role waits until the pods of those before it run.
    """

    name: str
    roles: Mapping[str, int]
    in_order: bool = False

    def missing(self, pods: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
        """Return role and index of each pod that is made next."""
        phases = {pod["metadata"]["name"]: pod.get("status", {}).get("phase") for pod in pods}
        return [one for role in self._begun(phases) for one in self._pods(role) if self.pod_name(*one) not in phases]

    def pod_name(self, role: str, index: int) -> str:
        """Return a pod's name."""
        return f"{self.name}-{role}-{index}"

    def _begun(self, phases: Mapping[str, str | None]) -> Iterator[str]:
        for role in self.roles:
            yield role
            if self.in_order and any(phases.get(self.pod_name(*one)) not in _STARTED for one in self._pods(role)):
                return

    def _pods(self, role: str) -> Iterator[tuple[str, int]]:
        return ((role, index) for index in range(self.roles[role]))
