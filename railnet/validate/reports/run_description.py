"""Says which run a report is of. Pure."""

from typing import Any, NamedTuple


class RunDescription(NamedTuple):
    """Which run a report is of.

    Attributes:
        started: when, as ISO 8601 in UTC.
        seconds: how long it took, with the pods' start and end.
        server: the host and port of the API server.
        context: of the kubeconfig.
        namespace: of the pods.
        image: of the pods.
        measured_seconds: how long each bandwidth was measured.
        baseline: the earlier run that this one was compared with; empty if there is none.
        all_reduce_image: of the pods that had the all-reduce; empty if there was none.
    """

    started: str = ""
    seconds: float = 0.0
    server: str = ""
    context: str = ""
    namespace: str = ""
    image: str = ""
    measured_seconds: float = 0.0
    baseline: str = ""
    all_reduce_image: str = ""


def run_as_json(about: RunDescription) -> dict[str, Any]:
    """Return it for programs."""
    return {
        "started": about.started or None,
        "seconds": round(about.seconds, 1),
        "server": about.server or None,
        "context": about.context or None,
        "namespace": about.namespace or None,
        "image": about.image or None,
        "allReduceImage": about.all_reduce_image or None,
        "measuredSeconds": about.measured_seconds,
        "baseline": about.baseline or None,
    }
