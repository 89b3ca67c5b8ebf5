"""`railnet train ls`: the jobs of `railnet train up`, with the states of their tasks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from railnet.apiserver import rail_reach
from railnet.apiserver.client import ApiServer
from railnet.apiserver.request import JsonObject
from railnet.cli.colour import Colour, Words
from railnet.cli.output import Output
from railnet.cli.table import Column, aligned
from railnet.fabric.published_reach import UNPUBLISHED, PublishedReach
from railnet.jobs.railnet_labels import TRAIN
from railnet.jobs.rails_apart import RailsApart, as_json, pod_rails, rails_apart, words
from railnet.jobs.train_job.task_states import summary, task_states
from railnet.jobs.train_job.train_job import PS, WORKER
from railnet.objects.metadata_times import created_text
from railnet.objects.network_status import rails_of_pod
from railnet.train.job_lookup import CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS, collection, is_complete, is_owner, listed

_COLUMNS = (
    Column("NAMESPACE"),
    Column("JOB"),
    Column("STATE"),
    Column("PARAMETER SERVERS"),
    Column("WORKERS"),
    Column("RESTARTS", number=True),
    Column("WAITS FOR"),
)
_WIDE = (*_COLUMNS, Column("CREATED"), Column("NODES"))
ApartOf = Mapping[tuple[str, str], RailsApart | None]  # by namespace and name of the job
_HALF_MADE = "half made"  # `railnet train up` died in the middle
_WORDS = Words(
    {
        **dict.fromkeys(("running", "completed"), Colour.GREEN),
        **dict.fromkeys(("failed", _HALF_MADE), Colour.RED),
        "waiting": Colour.YELLOW,
    }
)


def ls(api: ApiServer, namespace: str | None, output: Output) -> None:
    """Print all jobs of a namespace, or of all namespaces."""
    objects = {
        resource: listed(api, collection(resource, namespace)) for resource in (CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS)
    }
    reach = rail_reach.read(api) if any(rails_of_pod(pod) for pod in objects[PODS]) else UNPUBLISHED
    apart = {key: rails_apart(pod_rails(pods), reach) for key, pods in _by_job(objects[PODS]).items()}
    jobs = list(described(objects[CONFIG_MAPS], [*objects[DEPLOYMENTS], *objects[JOBS]], objects[PODS], apart))
    output.show({"jobs": jobs}, [*_lines(jobs, wide=output.wide), *_apart_lines(jobs, apart, reach)], _WORDS)


def described(
    owners: Iterable[JsonObject], makers: Iterable[JsonObject], pods: Iterable[JsonObject], apart: ApartOf
) -> Iterator[dict[str, Any]]:
    """Yield each job as JSON has it, sorted by namespace and name."""
    makers_of, pods_of = _by_job(makers), _by_job(pods)
    for key, (owner, *_) in sorted(
        _by_job(owner for owner in owners if is_owner(owner, owner["metadata"]["name"])).items()
    ):
        tasks = task_states(makers_of.get(key, ()), pods_of.get(key, ()), {})
        yield {
            "namespace": key[0],
            "name": key[1],
            "state": summary(tasks) if is_complete(owner) else _HALF_MADE,
            "created": created_text(owner["metadata"]) or None,
            "tasks": [{"name": task.name, **asdict(task)} for task in tasks],
            "railsApart": as_json(apart.get(key)),
        }


def _lines(jobs: list[dict[str, Any]], *, wide: bool) -> Iterator[str]:
    if not jobs:
        yield "there is no job of railnet train"
    elif wide:
        yield from aligned(_WIDE, [(*_row(job), job["created"] or "-", _nodes(job["tasks"])) for job in jobs])
    else:
        yield from aligned(_COLUMNS, [_row(job) for job in jobs])


def _apart_lines(jobs: Iterable[dict[str, Any]], apart: ApartOf, reach: PublishedReach) -> Iterator[str]:
    """Yield a line for each job whose pods do not reach each other, and why that is not known."""
    for job in jobs:
        of_job = apart.get((job["namespace"], job["name"]))
        if of_job is not None:
            yield f"{job['namespace']}/{job['name']}: {words(of_job)}"
    if reach.trouble:
        yield reach.trouble


def _nodes(tasks: list[dict[str, Any]]) -> str:
    return ", ".join(sorted({task["node"] for task in tasks if task["node"]})) or "-"


def _by_job(documents: Iterable[JsonObject]) -> dict[tuple[str, str], list[JsonObject]]:
    by_job: dict[tuple[str, str], list[JsonObject]] = {}
    for document in documents:
        metadata = document["metadata"]
        by_job.setdefault((metadata["namespace"], metadata["labels"][TRAIN]), []).append(document)
    return by_job


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    tasks: list[dict[str, Any]] = job["tasks"]
    why = next((f"{task['name']}: {task['why']}" for task in tasks if task["why"]), "")
    restarts = sum(task["restarts"] for task in tasks)
    return (job["namespace"], job["name"], job["state"], _stages(tasks, PS), _stages(tasks, WORKER), str(restarts), why)


def _stages(tasks: list[dict[str, Any]], role: str) -> str:
    counts = Counter(str(task["stage"]) for task in tasks if task["role"] == role)
    return ", ".join(f"{count} {stage}" for stage, count in counts.items()) or "-"
