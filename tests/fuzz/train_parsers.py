"""Parsers of what users write about their jobs: the file of `railnet train`, and manifests of jobs of any operator."""

import copy
import json

from railnet.errors import Misconfigured
from railnet.jobs.job_pods.job_pods import makes_pods, pods_of
from railnet.jobs.train_job.objects import objects
from railnet.jobs.train_job.operator_objects import OPERATOR_OBJECTS, objects_as
from railnet.objects import pod
from railnet.train.job_file import job_of
from tests.fuzz.parser import Parser

# The functions that return these are called once, when the module is imported.
_READERS = ("each_of.read", "each_by_name.read", "kubernetes_object.read", "_all", "_quantity", "_rails", "volume")
_MOST_TASKS = 20  # whose objects are looked at: a file may ask for thousands


def job_file(data: bytes) -> None:
    """Judge a job's file: each of its pods is one, and a file that is read twice is the same job."""
    text = data.decode(errors="replace")
    job = job_of(text, "job.yaml", "mpijob" if "kind: mpi" in text else None)
    if job.workers + job.ps > _MOST_TASKS:
        return
    for name, wanted in OPERATOR_OBJECTS.items():
        if wanted.job_kind == job.kind:
            *others, wanted_object = objects_as(job, name)
            assert all(pod.parse(rendered.pod).containers for rendered in pods_of(wanted_object, others))
    if job.kind == "mpi":
        return
    made = list(objects(job))
    json.dumps(made)
    pods = [one["spec"]["template"] for one in made if "template" in one["spec"]]
    assert len(pods) == job.workers + job.ps
    for one in pods:
        assert pod.parse({**one, "kind": "Pod"}).containers
    assert job.kind == "mpi" or job_of(text, "job.yaml") == job


def job_manifest(data: bytes) -> None:
    """Judge a manifest, or a list of one and of other objects: what is rendered of it is a pod or has a named mistake, and the manifest stays as it is."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return  # `explain` says so itself
    document, *others = document if isinstance(document, list) and document else [document]
    if not isinstance(document, dict) or not makes_pods(document):
        return
    before = copy.deepcopy(document)
    for rendered in pods_of(document, [other for other in others if isinstance(other, dict)]):
        assert rendered.pod["kind"] == "Pod"
        assert pod.parse(rendered.pod).containers
        assert rendered.replicas is None or rendered.replicas >= 0
    assert document == before


PARSERS = (
    Parser(
        "train-job-file",
        job_file,
        (Misconfigured,),
        {
            "railnet.train.job_file": ("job_of", "_read", "_wrong_keys", "_located"),
            "railnet.train.job_file_line_numbers": (),
            "railnet.train.job_value_readers": _READERS,
        },
        largest=1 << 14,
    ),
    Parser(
        "job-manifest",
        job_manifest,
        (Misconfigured,),
        {
            "railnet.jobs.job_pods.job_pods": (),
            "railnet.jobs.job_pods.operator_job_pods": (),
            "railnet.jobs.job_pods.pod_of_template": (),
        },
        largest=1 << 14,
    ),
)
