"""`TF_CONFIG` with names on net1: TensorFlow carries its data to the very addresses by which its tasks find each other.

Every address in `cluster` gets the job's headless Service between the task's name and what its operator wrote after that:
`mnist-ps-0.ml.svc:2222` becomes `mnist-ps-0.mnist-net1.ml.svc:2222`. Where a headless Service of the operator's stands there
already, as Volcano writes it, it is replaced: `mnist-ps-0.mnist:2222` becomes `mnist-ps-0.mnist-net1:2222`. Other frameworks meet on eth0 and take their interface from
`environment`.
"""

import json
import re
from ipaddress import ip_address
from typing import Any, NamedTuple

from admission.short_names import shortened
from vf.errors import Misconfigured

VARIABLE = "TF_CONFIG"
# The latter is of training-operators before github.com/kubeflow/trainer/pull/1798.
_CLUSTERS = ("cluster", "sparseCluster")
_SUFFIX = "-net1"
_NAME_LENGTH = 63  # RFC 1035 label: k8s.io/apimachinery/pkg/util/validation, DNS1035LabelMaxLength
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def service(job: str) -> str:
    """Name the headless Service in which a job's pods have their names on net1; of a long name it keeps a digest.

    Raises:
        Misconfigured: the job's name cannot begin a Service's.
    """
    if _NAME.fullmatch(job) is None:
        raise Misconfigured(f"the job's name {job!r:.80} cannot be a Service's, so its pods cannot have names on net1")
    return shortened(job, _NAME_LENGTH - len(_SUFFIX)) + _SUFFIX


def rewritten(value: str, job: str, subdomain: str | None = None) -> str:
    """Return the value of `TF_CONFIG` with the names of a job's tasks on net1; one that has them already stays as it is.

    `subdomain` is the pod's: the headless Service in which it has its name, where there is one.

    `cluster` maps each role to its tasks' addresses: a list, or in Kubeflow's sparse form, in `cluster` or `sparseCluster`, a
    mapping by index; a list that Go never made is null. IP addresses and `localhost` stay, as does everything else in it.

    Raises:
        Misconfigured: it is not of that form.
    """
    try:
        document = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _odd(f"it is not JSON: {error!s:.100}") from None
    if not isinstance(document, dict):
        raise _odd("it is not a mapping")
    names = _Names(service(job), subdomain)
    clusters = {key: _roles(key, document[key], names) for key in _CLUSTERS if key in document}
    if all(document[key] == cluster for key, cluster in clusters.items()):
        return value
    return json.dumps({**document, **clusters}, separators=(",", ":"), ensure_ascii=False)


class _Names(NamedTuple):
    service: str
    subdomain: str | None


def _roles(key: str, cluster: Any, names: _Names) -> dict[str, Any]:
    if not isinstance(cluster, dict):
        raise _odd(f"its {key} is not a mapping of roles")
    return {role: _tasks(tasks, names) for role, tasks in cluster.items()}


def _tasks(tasks: Any, names: _Names) -> Any:
    if tasks is None:
        return None
    if isinstance(tasks, dict):
        return {index: _address(address, names) for index, address in tasks.items()}
    if isinstance(tasks, list):
        return [_address(address, names) for address in tasks]
    raise _odd(f"{tasks!r:.60} is not a list of addresses")


def _address(address: Any, names: _Names) -> str:
    if not isinstance(address, str):
        raise _odd(f"{address!r:.60} is not an address")
    host, colon, port = address.rpartition(":") if ":" in address else (address, "", "")
    task, *rest = host.split(".")
    if _is_fixed(address) or _is_fixed(host) or rest[:1] == [names.service]:
        return address
    return f"{'.'.join((task, names.service, *rest[_has_service(rest, names.subdomain) :]))}{colon}{port}"


def _has_service(rest: list[str], subdomain: str | None) -> bool:
    """Tell of what follows a task's name whether it begins with a headless Service: that stands before namespace and `svc`."""
    return rest[1:2] != ["svc"] and (rest[2:3] == ["svc"] or rest[:1] == [subdomain])


def _is_fixed(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return host in ("", "localhost")
    return True


def _odd(why: str) -> Misconfigured:
    return Misconfigured(f"{VARIABLE} cannot be given names on net1: {why:.200}")
