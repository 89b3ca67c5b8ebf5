"""The gangs of Kubernetes 1.27, whose API servers select by labels alone: `overlays/gangs/webhook-1.27` on `overlays/admission-1.27`."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from railnet.jobs.gang_labels import SPELLINGS, names_gang
from railnet.jobs.pod import parse
from tests.cluster.process import wait_until
from tests.control_plane.cluster import Cluster
from tests.control_plane.server import ApiServer
from tests.railnet.admission.goldens import GOLDENS
from tests.railnet.admission.test_gang_goldens import FILES

OVERLAYS = Path(__file__).resolve().parents[2] / "overlays"
NAMESPACE = "gangs-by-selectors"
GATE = {"name": "railnet.io/gang"}


@pytest.fixture(scope="module")
def cluster(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("overlay")
    relative = {name: os.path.relpath(OVERLAYS / name, folder) for name in ("admission-1.27", "gangs/webhook-1.27")}
    overlay = {"resources": [relative["admission-1.27"]], "components": [relative["gangs/webhook-1.27"]]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    with Cluster(server, str(folder), tmp_path_factory.mktemp("replica"), options=["--gangs"]) as found:
        found.namespace(NAMESPACE, None)
        wait_until(lambda: waits(found, "article-job"), 30, "a pod that waits for its gang")
        yield found


def waits(found: Cluster, golden: str) -> bool:
    answer = found.create(FILES[golden]["pod"], NAMESPACE)
    return answer.status == 201 and GATE in (answer.object["spec"].get("schedulingGates") or ())


def of_gangs(calls: Counter[str]) -> int:
    return sum(count for name, count in calls.items() if name.endswith(".gangs.railnet.io"))


@pytest.mark.parametrize("golden", [name for name, one in FILES.items() if "gang" in one["expected"]])
def test_pod_waits_if_a_label_names_its_gang(cluster: Cluster, golden: str) -> None:
    labels = FILES[golden]["pod"]["metadata"].get("labels") or {}

    assert waits(cluster, golden) is any(one.name in labels for one in SPELLINGS if not one.annotated)


def test_pods_without_a_label_of_a_gang_cause_no_call_about_gangs(cluster: Cluster) -> None:
    before = cluster.calls()
    for golden in GOLDENS:
        if golden.configuration is None and golden.net1 is None and not names_gang(parse(golden.pod)):
            cluster.create(golden.pod, NAMESPACE)

    assert of_gangs(cluster.calls() - before) == 0
    assert waits(cluster, "article-job")
    assert of_gangs(cluster.calls() - before) == 1
