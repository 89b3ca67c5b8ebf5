"""`railnet admission explain`: print what a review does to the pods of a file when they are created, and why."""

import sys
from pathlib import Path
from typing import Any

import yaml

from railnet.admission import offline
from railnet.admission.review_configuration import Policy
from railnet.cli.escapes import printable
from railnet.configuration import Configuration
from railnet.errors import Misconfigured
from railnet.vf.permitted_networks import DEFAULT, SliceIpam
from railnet.webhook.claims_of_file import ClaimsOfFile

# The errors that `railnet.strict_yaml` names, and RecursionError for too many brackets.
_YAML_ERRORS = (yaml.YAMLError, ValueError, AttributeError, LookupError, ArithmeticError, TypeError, RecursionError)


def explain(file: str, configuration: Configuration, host_ports: str | None = None, *, gangs: bool = False) -> bool:
    """Print an explanation of each pod; return whether every pod would be admitted.

    With a range of host ports, as if host-network mode were on; each pod that asks for it gets the first port. With
    `gangs`, as if gangs were on. VFs of claims count if the claims or their templates are in the file.

    Raises:
        Misconfigured: the file cannot be read, is not YAML, or has an object other than a Pod or a Namespace; or the range is none.
    """
    source = "standard input" if file == "-" else file
    free_port = None if host_ports is None else offline.first_port(host_ports)
    objects, reviewed = list(offline.objects_of(_documents(file, source))), policy(configuration)
    claims = ClaimsOfFile(objects, reviewed.resources)
    explained = list(offline.explain(objects, reviewed, free_port, claims.vfs, gangs=gangs))
    if not explained:
        raise Misconfigured(
            f"{source} has no job and no Pod; give a file with one, such as the output of kubectl get pod -o yaml"
        )
    for pod in explained:
        print(*map(printable, pod.lines), sep="\n")
    return all(pod.allowed for pod in explained)


def policy(configuration: Configuration) -> Policy:
    """Return the part of the node configuration that a review needs."""
    return Policy(
        resources=tuple(pool.resource for pool in configuration.pools),
        rails=_rails(configuration),
        networks=configuration.networks,
        priority_class=configuration.admission.priority_class,
        environment=configuration.admission.environment,
    )


def _rails(configuration: Configuration) -> int | None:
    """Return how many rails a node has at most; None if the configuration leaves that to each node."""
    if configuration.rails is not None:
        return len(configuration.rails)
    network = configuration.networks.by_name.get(DEFAULT)
    return network.ipam.rails if network is not None and isinstance(network.ipam, SliceIpam) else None


def _documents(file: str, source: str) -> list[Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        return list(yaml.safe_load_all(text))
    except OSError as error:
        raise Misconfigured(f"{source} cannot be read: {error.strerror}") from None
    except _YAML_ERRORS as error:
        raise Misconfigured(f"{source} is not YAML: {error!s:.400}") from None
