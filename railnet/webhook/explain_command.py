"""`railnet admission explain`: print what a review does to the pods of a file when they are created, and why."""

from collections.abc import Iterable
from typing import Any

from railnet.admission import offline
from railnet.admission.review_configuration import Policy
from railnet.cli.escapes import printable
from railnet.configuration import Configuration
from railnet.errors import Misconfigured
from railnet.vf.permitted_networks import DEFAULT, SliceIpam
from railnet.webhook import manifest_documents
from railnet.webhook.claims_of_file import ClaimsOfFile


def explain(file: str, configuration: Configuration, host_ports: str | None = None, *, gangs: bool = False) -> bool:
    """Print an explanation of each pod; return whether every pod would be admitted.

    With a range of host ports, as if host-network mode were on; each pod that asks for it gets the first port. With
    `gangs`, as if gangs were on. VFs of claims count if the claims or their templates are in the file.

    Raises:
        Misconfigured: the file cannot be read, is not YAML, or has an object other than a Pod or a Namespace; or the range is none.
    """
    source = "standard input" if file == "-" else file
    free_port = None if host_ports is None else offline.first_port(host_ports)
    documents = manifest_documents.documents(file, source)
    _refuse_job_of_train(documents, source)
    objects, reviewed = list(offline.objects_of(documents)), policy(configuration)
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


def _refuse_job_of_train(documents: Iterable[Any], source: str) -> None:
    """Raise Misconfigured, with the command that gives the objects, if a document is the file of a job of `railnet train`."""
    for document in documents:
        if isinstance(document, dict) and "apiVersion" not in document and {"image", "workers"} <= document.keys():
            raise Misconfigured(
                f"{source} is the file of a job of railnet train, and no object of Kubernetes; give its objects: "
                f"railnet train up -f {source} --dry-run=client -o yaml | railnet admission explain -f -"
            )
