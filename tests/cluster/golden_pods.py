"""A pod that a real operator has made, beside a golden pod, which was read from the operator's sources (`tests/railnet/admission/golden`)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from railnet.admission.environment import VARIABLES
from tests.railnet.admission.goldens import FOLDER, read

_OURS = ("railnet.io/", "railnet.example.com/")  # Railnet's, and those of the tests


class Made(NamedTuple):
    """What an operator makes of a pod template; values that differ from job to job are left out.

    Attributes:
        labels: their names.
        annotations: their names.
        owner: apiVersion and kind of the controller.
        env: the names of the variables of the container that trains.
        ports: the names of its ports.
        fields: whether the pod has these fields.
    """

    labels: frozenset[str]
    annotations: frozenset[str]
    owner: tuple[str, str]
    env: frozenset[str]
    ports: frozenset[str]
    fields: Mapping[str, bool]


def made(pod: Mapping[str, Any], container: str) -> Made:
    """Return what the operator has made of a pod, without what Railnet's webhook and nodes add."""
    metadata, spec = pod["metadata"], pod["spec"]
    (trains,) = (one for one in spec["containers"] if one["name"] == container)
    (owner,) = metadata["ownerReferences"]
    added = {variable.name for variable in VARIABLES}
    return Made(
        labels=_names(metadata.get("labels", {})),
        annotations=_names(metadata.get("annotations", {})) - {"k8s.v1.cni.cncf.io/network-status"},
        owner=(owner["apiVersion"], owner["kind"]),
        env=frozenset(variable["name"] for variable in trains.get("env", ())) - added,
        ports=frozenset(port.get("name", "") for port in trains.get("ports", ())),
        fields={name: bool(spec.get(name)) for name in ("hostname", "subdomain", "hostNetwork")},
    )


def golden(name: str, container: str) -> Made:
    """Return the same of a golden pod."""
    return made(read(FOLDER / f"{name}.yaml").pod, container)


def _names(mapping: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name for name in mapping if not name.startswith(_OURS))
