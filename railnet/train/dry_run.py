"""`railnet train up --dry-run`: what would be created, as this command makes it, or as the API server would have it."""

from collections.abc import Iterable

from railnet.apiserver.client import ApiServer, Conflict, RequestFailed
from railnet.apiserver.request import JsonObject, create_dry
from railnet.cli.messages import say
from railnet.cli.output import Output
from railnet.train.creation import (
    CreationRefused,
    JobFile,
    check_priority,
    check_served,
    check_stored,
    misses_runtime,
    namespace_exists,
)
from railnet.train.job_lookup import address


def client(file: JobFile, output: Output) -> bool:
    """Print what `up` would create, without a cluster; return that all is well."""
    _show(_all(file), output)
    return True


def server(api: ApiServer, file: JobFile, output: Output) -> bool:
    """Have the API server check all objects, and print them as it would store them; return whether it would take all of them.

    Raises:
        CreationRefused: the namespace, or the PriorityClass, does not exist.
        RequestFailed: the API server does not answer.
    """
    namespace = file.job.in_namespace
    check_priority(api, file.job)
    check_served(api, file)
    if not namespace_exists(api, file.job):
        raise CreationRefused(
            f"namespace {namespace} does not exist, so the API server can check nothing in it; kubectl create namespace {namespace}, or use "
            "--dry-run=client (up without --dry-run creates the namespace)"
        )
    taken, refused = [], 0
    for body in _all(file):
        try:
            stored = api.send(create_dry(address(body), body))
            check_stored(body, stored)
            taken.append(stored)
        except CreationRefused as refusal:
            refused += 1
            say(refusal)
        except Conflict:
            refused += 1
            say(
                f"{body['kind']} {body['metadata']['name']} exists already; railnet train down {file.job.name} removes a job"
            )
        except RequestFailed as error:
            if error.temporary:
                raise
            if misses_runtime(body, error):
                say(
                    f"{body['kind']} {body['metadata']['name']} cannot be checked: its operator looks for the runtime, which a dry run does not store"
                )
                continue
            refused += 1
            say(f"{body['kind']} {body['metadata']['name']}: {error}")
    _show(taken, output)
    return not refused


def _all(file: JobFile) -> list[JsonObject]:
    return [file.owner, *file.objects]


def _show(documents: Iterable[JsonObject], output: Output) -> None:
    """Print objects as one List, as kubectl does, or their names."""
    bodies = list(documents)
    lines = [
        f"{body['kind']} {body['metadata']['name']} in namespace {body['metadata']['namespace']}" for body in bodies
    ]
    output.show({"apiVersion": "v1", "kind": "List", "items": bodies}, lines or ["nothing"])
