"""`TF_CONFIG` with names on net1, or with the task's own port on the host: TensorFlow sends its data to the same addresses by which its tasks find each other.

Every address in `cluster` gets the job's headless Service after the task's name: `mnist-ps-0.ml.svc:2222` becomes
`mnist-ps-0.mnist-net1.ml.svc:2222`. If the operator has written its own headless Service there, as Volcano does, that is replaced:
`mnist-ps-0.mnist:2222` becomes `mnist-ps-0.mnist-net1:2222`. Other frameworks need no such names: they meet on eth0, and the variables of
`environment` name the interface for their data.
"""

import json
import re
from ipaddress import ip_address
from typing import Any, NamedTuple

from railnet.admission.railnet_annotations import RENDEZVOUS
from railnet.errors import Misconfigured
from railnet.jobs.net1_names import service

VARIABLE = "TF_CONFIG"
# training-operator wrote `sparseCluster` before github.com/kubeflow/trainer/pull/1798.
_CLUSTERS = ("cluster", "sparseCluster")
# execve(2): a string of the environment, `TF_CONFIG=…` with its final NUL, has at most MAX_ARG_STRLEN = 32 pages; else E2BIG.
MAX_BYTES = (32 << 12) - len(VARIABLE) - 2
_IPV4 = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+")


def rewritten(value: str, job: str, subdomain: str | None = None) -> str:
    """Return the value of `TF_CONFIG` with the names of a job's tasks on net1; a value that has them already is returned unchanged.

    `subdomain` is the pod's subdomain: the operator's headless Service in which the pod has its name; None if it has none.

    `cluster` maps each role to its tasks' addresses: a list, or in Kubeflow's sparse form (in `cluster` or `sparseCluster`) a mapping by
    index; null is a list that the operator, in Go, never filled. IP addresses, `localhost` and all other keys stay as they are.

    Raises:
        Misconfigured: the value does not have that form, or is too long for a process, as it is or with the names on net1.
    """
    _check_length(value, "it has")
    try:
        document = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"it is not JSON: {error!s:.100}") from None
    if not isinstance(document, dict):
        raise _malformed("it is not a mapping")
    names = _Names(_service(job), subdomain)
    clusters = {key: _roles(key, document[key], names) for key in _CLUSTERS if key in document}
    if all(document[key] == cluster for key, cluster in clusters.items()):
        return value
    after = json.dumps({**document, **clusters}, separators=(",", ":"), ensure_ascii=False)
    _check_length(after, "with these names it has")
    return after


def with_own_port(value: str, port: int) -> str:
    """Return the value of `TF_CONFIG` in which the task's own address has another port; unchanged if it has no address of its own.

    TensorFlow's server listens at the port of its own address. An evaluator is not in `cluster` and does not listen.

    Raises:
        Misconfigured: the value is not a mapping of tasks, as `rewritten`, or its `task` is not one.
    """
    if len(value.encode(errors="replace")) > MAX_BYTES:
        raise _unreadable(f"it has more than {MAX_BYTES} bytes, with which Linux starts no process")
    try:
        document = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"it is not JSON: {error!s:.100}") from None
    if not isinstance(document, dict) or not isinstance(document.get("task"), dict | None):
        raise _unreadable("it is not a mapping with a task")
    task = document.get("task") or {}
    role, index = task.get("type"), str(task.get("index"))
    changed = {
        key: _own_port(document[key], role, index, port) for key in _CLUSTERS if isinstance(document.get(key), dict)
    }
    if all(document[key] == cluster for key, cluster in changed.items()):
        return value
    return json.dumps({**document, **changed}, separators=(",", ":"), ensure_ascii=False)


def _own_port(cluster: dict[str, Any], role: Any, index: str, port: int) -> dict[str, Any]:
    tasks = cluster.get(role) if isinstance(role, str) else None
    if isinstance(tasks, dict):
        return {
            **cluster,
            role: {key: _at(address, port) if key == index else address for key, address in tasks.items()},
        }
    if isinstance(tasks, list):
        return {
            **cluster,
            role: [_at(address, port) if str(place) == index else address for place, address in enumerate(tasks)],
        }
    return cluster


def _at(address: Any, port: int) -> str:
    if not isinstance(address, str):
        raise _unreadable(f"{address!r:.60} is not an address")
    host, colon, number = address.rpartition(":")
    return f"{host if colon and number.isdecimal() else address}:{port}"


def _unreadable(why: str) -> Misconfigured:
    return Misconfigured(
        f"{VARIABLE} cannot get the port of host-network mode: {why:.200}; correct it, or remove the annotation "
        "that asks for the host's network"
    )


def _check_length(value: str, has: str) -> None:
    size = len(value.encode(errors="replace"))
    if size > MAX_BYTES:
        raise _malformed(f"{has} {size} bytes, and Linux starts no process with a variable of more than {MAX_BYTES}")


def _service(job: str) -> str:
    try:
        return service(job)
    except Misconfigured as error:
        raise Misconfigured(f"{error}, or remove the annotation {RENDEZVOUS}") from None


class _Names(NamedTuple):
    service: str
    subdomain: str | None


def _roles(key: str, cluster: Any, names: _Names) -> dict[str, Any]:
    if not isinstance(cluster, dict):
        raise _malformed(f"its {key} is not a mapping of roles")
    return {role: _tasks(tasks, names) for role, tasks in cluster.items()}


def _tasks(tasks: Any, names: _Names) -> Any:
    if tasks is None:
        return None
    if isinstance(tasks, dict):
        return {index: _address(address, names) for index, address in tasks.items()}
    if isinstance(tasks, list):
        return [_address(address, names) for address in tasks]
    raise _malformed(f"{tasks!r:.60} is not a list of addresses")


def _address(address: Any, names: _Names) -> str:
    if not isinstance(address, str):
        raise _malformed(f"{address!r:.60} is not an address")
    host, colon, port = address.rpartition(":") if ":" in address else (address, "", "")
    task, *rest = host.split(".")
    if _is_fixed(address) or _is_fixed(host) or rest[:1] == [names.service]:
        return address
    return f"{'.'.join((task, names.service, *rest[_has_service(rest, names.subdomain) :]))}{colon}{port}"


def _has_service(rest: list[str], subdomain: str | None) -> bool:
    """Return whether the labels after a task's name begin with a headless Service: it comes before the namespace and `svc`."""
    return rest[1:2] != ["svc"] and (rest[2:3] == ["svc"] or rest[:1] == [subdomain])


def _is_fixed(host: str) -> bool:
    bare = host.strip("[]")
    if bare.count(":") < 2 and _IPV4.fullmatch(bare) is None:  # noqa: PLR2004 - an IPv6 address has two
        return host in ("", "localhost")  # almost every host: ip_address takes 20 times as long to refuse it
    try:
        ip_address(bare)
    except ValueError:
        return host in ("", "localhost")
    return True


def _malformed(why: str) -> Misconfigured:
    return Misconfigured(
        f"{VARIABLE} cannot get names on net1: {why:.200}; correct it, or remove the annotation {RENDEZVOUS}"
    )
