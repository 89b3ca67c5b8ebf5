"""The pods that controllers make of a job: one for each pod template, with the labels, names and variables by which the job is recognised.

Rendered offline from the job's manifest, for an explanation before anything is created. What depends on the cluster (UIDs, hashes, a runtime that
the file lacks) is left out, or has a placeholder. Of a template's replicas the first is rendered. Here are Kubernetes' own kinds, and which kinds are known;
those of operators are in `operator_job_pods`. The sources of all fields are those that the golden pods name (tests/railnet/admission/golden).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from railnet.errors import Misconfigured
from railnet.jobs.job_pods import operator_job_pods as operators
from railnet.jobs.job_pods.pod_of_template import JobManifest, RenderedPod, at, completion_pod, number, pod_of

_HASH = "xxxxx"  # what Kubernetes puts behind a name, by chance or as a digest
# Of these no pods are made before a TrainJob names one, with which it is rendered.
_RUNTIMES = {("trainer.kubeflow.org", f"{scope}TrainingRuntime") for scope in ("", "Cluster")}
_Rendering = Callable[[JobManifest], Iterator[RenderedPod]]


def makes_pods(document: Mapping[str, Any]) -> bool:
    """Return whether an object of an unknown kind has a pod's containers somewhere, or is of a kind of which pods are made."""
    return _key(document) in _KINDS or (_key(document) not in _RUNTIMES and _has_containers(document.get("spec")))


def pods_of(document: Mapping[str, Any], others: Iterable[Mapping[str, Any]] = ()) -> Iterator[RenderedPod]:
    """Yield a pod for each of a job's pod templates, and how many such pods the controller makes.

    Args:
        document: the job.
        others: the other objects of its file; a TrainJob's runtime may be among them.

    Raises:
        Misconfigured: the kind is not known, or a part of the job has another form.
    """
    rendering = _KINDS.get(_key(document))
    job = JobManifest(document, tuple(others))
    if rendering is None:
        known = ", ".join(sorted({kind for _, kind in _KINDS}))
        raise Misconfigured(
            f"{job} ({document.get('apiVersion')!s:.60}) has pods, and which ones its controller makes is not known; give its pods (kubectl get pod -o "
            f"yaml), or one of: {known}"
        )
    return rendering(job)


def _key(document: Mapping[str, Any]) -> tuple[str, str]:
    return str(document.get("apiVersion") or "").partition("/")[0], str(document.get("kind"))


def _has_containers(part: object) -> bool:
    if isinstance(part, dict):
        return "containers" in part or any(map(_has_containers, part.values()))
    return isinstance(part, list) and any(map(_has_containers, part))


def _deployment(job: JobManifest) -> Iterator[RenderedPod]:
    replica_set = f"{job.name}-{_HASH}" if job.kind == "Deployment" else job.name
    owner = ("apps/v1", "ReplicaSet", replica_set)
    yield RenderedPod(
        pod_of(job, at(job, "spec.template"), f"{replica_set}-{_HASH}", owner=owner), number(job, "spec.replicas")
    )


def _stateful_set(job: JobManifest) -> Iterator[RenderedPod]:
    name = f"{job.name}-0"
    labels = {"apps.kubernetes.io/pod-index": "0", "statefulset.kubernetes.io/pod-name": name}
    pod = pod_of(job, at(job, "spec.template"), name, labels)
    pod["spec"] |= {"hostname": name, "subdomain": str(job.spec.get("serviceName") or "")}
    yield RenderedPod(pod, number(job, "spec.replicas"))


def _daemon_set(job: JobManifest) -> Iterator[RenderedPod]:
    yield RenderedPod(pod_of(job, at(job, "spec.template"), f"{job.name}-{_HASH}"), None)


def _job(job: JobManifest) -> Iterator[RenderedPod]:
    yield completion_pod(job, job.spec, job.name)


def _cron_job(job: JobManifest) -> Iterator[RenderedPod]:
    yield completion_pod(job, at(job, "spec.jobTemplate.spec"), f"{job.name}-29000000")


_KINDS: Mapping[tuple[str, str], _Rendering] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    **dict.fromkeys(
        (("kubeflow.org", kind) for kind in ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")),
        operators.kubeflow,
    ),
    **dict.fromkeys(
        (
            ("training.kubedl.io", kind)
            for kind in ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "XDLJob", "MarsJob", "ElasticDLJob")
        ),
        operators.kubedl,
    ),
    ("jobset.x-k8s.io", "JobSet"): operators.job_set,
    ("trainer.kubeflow.org", "TrainJob"): operators.train_job,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): operators.leader_worker_set,
    **{("ray.io", kind): operators.ray for kind in operators.RAY_CLUSTERS},
    ("batch.volcano.sh", "Job"): operators.volcano,
}
