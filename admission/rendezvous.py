"""`TF_CONFIG` with names on net1: TensorFlow carries its data to the very addresses by which its tasks find each other.

Every address in `cluster` gets the job's headless Service between the task's name and what its operator wrote after that:
`mnist-ps-0.ml.svc:2222` becomes `mnist-ps-0.mnist-net1.ml.svc:2222`. Other frameworks meet on eth0 and take their interface from
`environment`.
"""

import hashlib
import json
import re
from ipaddress import ip_address
from typing import Any

from vf.errors import Misconfigured

VARIABLE = "TF_CONFIG"
# The latter is of training-operators before github.com/kubeflow/trainer/pull/1798.
_CLUSTERS = ("cluster", "sparseCluster")
_SUFFIX = "-net1"
_NAME_LENGTH = 63  # RFC 1035 label: k8s.io/apimachinery/pkg/util/validation, DNS1035LabelMaxLength
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DIGEST = 8


def service(job: str) -> str:
    """Name the headless Service in which a job's pods have their names on net1; of a long name it keeps a digest.

    Raises:
        Misconfigured: the job's name cannot begin a Service's.
    """
    if _NAME.fullmatch(job) is None:
        raise Misconfigured(f"the job's name {job!r:.80} can be no Service's, so its pods can have no names on net1")
    if len(job) + len(_SUFFIX) <= _NAME_LENGTH:
        return job + _SUFFIX
    digest = hashlib.sha256(job.encode()).hexdigest()[:_DIGEST]
    return f"{job[: _NAME_LENGTH - len(_SUFFIX) - _DIGEST - 1].rstrip('-')}-{digest}{_SUFFIX}"


def rewritten(value: str, job: str) -> str:
    """Give the value of `TF_CONFIG` with the names of a job's tasks on net1; one that has them already stays as it is.

    `cluster` maps each role to its tasks' addresses: a list, or in Kubeflow's sparse form, in `cluster` or `sparseCluster`, a
    mapping by index; a list that Go never made is null. IP addresses and `localhost` stay, as does everything else in it.

    Raises:
        Misconfigured: it is not of that form.
    """
    try:
        document = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _odd(f"it is no JSON: {error!s:.100}") from None
    if not isinstance(document, dict):
        raise _odd("it is no mapping")
    name = service(job)
    clusters = {key: _roles(key, document[key], name) for key in _CLUSTERS if key in document}
    if all(document[key] == cluster for key, cluster in clusters.items()):
        return value
    return json.dumps({**document, **clusters}, separators=(",", ":"), ensure_ascii=False)


def _roles(key: str, cluster: Any, name: str) -> dict[str, Any]:
    if not isinstance(cluster, dict):
        raise _odd(f"its {key} is no mapping of roles")
    return {role: _tasks(tasks, name) for role, tasks in cluster.items()}


def _tasks(tasks: Any, name: str) -> Any:
    if tasks is None:
        return None
    if isinstance(tasks, dict):
        return {index: _address(address, name) for index, address in tasks.items()}
    if isinstance(tasks, list):
        return [_address(address, name) for address in tasks]
    raise _odd(f"{tasks!r:.60} is no list of addresses")


def _address(address: Any, name: str) -> str:
    if not isinstance(address, str):
        raise _odd(f"{address!r:.60} is no address")
    host, colon, port = address.rpartition(":") if ":" in address else (address, "", "")
    task, _, rest = host.partition(".")
    if _is_fixed(host) or rest.partition(".")[0] == name:
        return address
    return f"{task}.{name}{'.' * bool(rest)}{rest}{colon}{port}"


def _is_fixed(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return host in ("", "localhost")
    return True


def _odd(why: str) -> Misconfigured:
    return Misconfigured(f"{VARIABLE} cannot be given names on net1: {why:.200}")
