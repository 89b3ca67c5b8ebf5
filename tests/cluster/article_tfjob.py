"""The TFJob of KubeDL's article for this cluster, as users of KubeDL and of Kubeflow's operator write it."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.operator_jobs import SPREAD, spread_over_nodes
from tests.cluster.railnet_on_node import IMAGE
from tests.stand_ins import toy_trainer

ARTICLE = Path(toy_trainer.__file__).with_name("article_tfjob.yaml")


def kubedls(
    folder: Path,
    *options: str,
    annotations: Mapping[str, str] | None = None,
    of_pods: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the article's job with the toy trainer in place of TensorFlow, and without requests.

    All else is the article's, but that the pods are spread over the nodes. The image is Railnet's own, which is on the nodes anyway and has Python.

    Args:
        folder: for checkpoints; all nodes have it.
        options: of the toy trainer.
        annotations: of the job.
        of_pods: annotations of the pod templates.
    """
    job: dict[str, Any] = copy.deepcopy(yaml.safe_load(ARTICLE.read_text()))
    job["metadata"]["annotations"] = dict(annotations or {})
    program = Path(toy_trainer.__file__).read_text()
    for role in job["spec"]["tfReplicaSpecs"].values():
        role["template"] = copy.deepcopy(role["template"])  # both roles have one, by an alias
        role["template"]["metadata"] = {"annotations": dict(of_pods or {}), "labels": dict(SPREAD)}
        spec = role["template"]["spec"]
        (container,), (volume,) = spec["containers"], spec["volumes"]
        (mount,) = container["volumeMounts"]
        container |= {
            "image": IMAGE,
            "command": ["python", "-c", program, f"--checkpoint={mount['mountPath']}", *options],
        }
        del container["resources"]
        volume["hostPath"]["path"] = str(folder)
        spec |= {
            "topologySpreadConstraints": [spread_over_nodes()],
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
        }
    return job


def kubeflows(folder: Path, *options: str, of_pods: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the same job for Kubeflow's operator: of another apiVersion, and with the clean-up's policy in `runPolicy`.

    That operator reads no annotation of the job.
    """
    job = kubedls(folder, *options, of_pods=of_pods)
    job["apiVersion"] = "kubeflow.org/v1"
    job["spec"]["runPolicy"] = {"cleanPodPolicy": job["spec"].pop("cleanPodPolicy")}
    return job
