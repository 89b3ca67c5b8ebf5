"""`railnet train ls`: the jobs of `railnet train up`, with the states of their tasks."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from railnet.apiserver.client import ApiServer
from railnet.apiserver.request import JsonObject
from railnet.cli.colour import Colour, Words
from railnet.cli.output import Output
from railnet.cli.table import Column, aligned
from railnet.jobs.railnet_labels import TRAIN
from railnet.jobs.task_states import summary, task_states
from railnet.jobs.train_job import PS, WORKER
from railnet.objects.metadata_times import created_text
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
    jobs = list(described(objects[CONFIG_MAPS], [*objects[DEPLOYMENTS], *objects[JOBS]], objects[PODS]))
    output.show({"jobs": jobs}, _lines(jobs, wide=output.wide), _WORDS)


def described(
    owners: Iterable[JsonObject], makers: Iterable[JsonObject], pods: Iterable[JsonObject]
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
        }


def _lines(jobs: list[dict[str, Any]], *, wide: bool) -> Iterator[str]:
    if not jobs:
        yield "there is no job of railnet train"
    elif wide:
        yield from aligned(_WIDE, [(*_row(job), job["created"] or "-", _nodes(job["tasks"])) for job in jobs])
    else:
        yield from aligned(_COLUMNS, [_row(job) for job in jobs])


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
