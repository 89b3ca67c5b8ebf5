"""The steps of the demo on a cluster of two nodes: the chart, a gang of PyTorch, `railnet validate` and its page.

`inside` starts the cluster.
"""

import contextlib
import http.client
import json
import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from simnode.remote_node import RemoteFailed
from tests.cluster import training_pods
from tests.cluster.admission_load import is_patched
from tests.cluster.api_requests import ApiRequests
from tests.cluster.chart import GANGS, copy_for_simulated_cards
from tests.cluster.control_plane import ADMIN
from tests.cluster.demo import job
from tests.cluster.demo.steps import Steps
from tests.cluster.ground import NODE, RUN
from tests.cluster.helm import Helm
from tests.cluster.kubelet import APART
from tests.cluster.manifests import NAMESPACE_FILE
from tests.cluster.node import PFS, ClusterNode, configuration
from tests.cluster.pod_networks import net1
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import IMAGE
from tests.cluster.training_pods import GPU
from tests.cluster.worker import SYSFS, VFS, Worker

PAGE, LOGS = "validate.html", "logs"
"""Names in the demo's folder."""

_JOB, _CHART, _VALUES = "job.yaml", "chart", "values.yaml"
_GPUS = 8  # of each node, as it says
_SECONDS = 240.0
_MOST_LOG_BYTES = 1 << 20  # of each file, from its end


class CommandFailed(RuntimeError):
    """A command of Railnet failed; the message has the command and what it printed."""


class Demo(NamedTuple):
    """A running cluster, the folder for what a person may look at, and what is printed."""

    cluster: ClusterNode
    folder: Path
    steps: Steps

    @property
    def nodes(self) -> list[str]:
        return [NODE, *self.cluster.others]

    def play(self) -> None:
        """Do all steps.

        Raises:
            Exception: a step failed.
        """
        self.steps.begin("importing the webhook's image on both nodes")
        with ThreadPoolExecutor() as threads:
            # Before its pods: a kubelet that does not find the image tries again only after ten seconds.
            _wait_for(self._import(threads, "ADMISSION"))
            torch = self._import(threads, "TORCH")
            self.steps.begin("installing the chart by Helm: webhook, controllers, gangs")
            self._install()
            for node in self.nodes:
                self.cluster.wait_for_vfs(VFS * len(PFS), node)
            self.steps.begin("importing an image with PyTorch, begun with the step before")
            _wait_for(torch)
        self.steps.begin("running a gang: railnet train init, railnet train up")
        self._train()
        self.steps.begin("measuring the rails: railnet validate --html")
        self._validate()
        self.steps.end()

    def save_logs(self) -> None:
        """Write what the programs and the pods of each node have said into the folder."""
        for node in self.nodes:
            with contextlib.suppress(RemoteFailed):  # the node has ended
                for name, content in self.cluster.on(node, logs).items():
                    path = self.folder / LOGS / node / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)

    def _import(self, threads: ThreadPoolExecutor, name: str) -> list[Future[None]]:
        """Begin to import an image on each node."""
        archive = Path(os.environ[f"RAILNET_{name}_IMAGE"])
        return [threads.submit(self.cluster.on, node, Worker.load, archive) for node in self.nodes]

    def _install(self) -> None:
        kubectl = self.cluster.kubectl
        kubectl.run("taint", "node", *self.cluster.others, f"{APART}-")
        kubectl.run("apply", f"--filename={NAMESPACE_FILE}")
        with ApiRequests() as api:
            for node in self.nodes:
                api.merge_status(node, {"capacity": {GPU: str(_GPUS)}})
        chart, values = self.folder / _CHART, self.folder / _VALUES
        copy_for_simulated_cards(chart, SYSFS)
        own = {key: value for key, value in configuration().items() if key in ("host", "provision")}
        values.write_text(json.dumps({"node": {"configuration": own}, **GANGS}, indent=2))
        Helm(ADMIN, chart).upgrade(values, more=("--wait", f"--timeout={_SECONDS:g}s"))
        wait_until(_is_reviewed, _SECONDS, "the API server to ask the webhook")

    def _train(self) -> None:
        file = self.folder / _JOB
        railnet("train", "init", "pytorch", str(file), f"--name={job.NAME}", "--force")
        job.edit(file)
        railnet("train", "up", "-f", str(file))
        where, selector = f"--namespace={job.NAME}", f"--selector=railnet.io/train={job.NAME}"
        self.cluster.kubectl.run("wait", "job", selector, where, "--for=condition=Complete", f"--timeout={_SECONDS:g}s")
        pods: list[dict[str, Any]] = self.cluster.kubectl.get("pods", selector, where)
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
            self._show_worker(pod, self.cluster.kubectl.run("logs", pod["metadata"]["name"], where))

    def _show_worker(self, pod: dict[str, Any], log: str) -> None:
        carried = ", ".join(f"{name} {count / 1e6:.1f} MB" for name, count in sorted(job.carried(log).items()))
        self.steps.show(f"{pod['spec']['nodeName']}, net1 {net1(pod)}: {job.ended(log)}", f"  carried: {carried}")

    def _validate(self) -> None:
        report = railnet(
            "validate",
            f"--image={IMAGE}",
            f"--rails={len(PFS)}",
            "--seconds=1",
            f"--html={self.folder / PAGE}",
        )
        self.steps.show(*report.splitlines(), "", f"the same as a page: {self.folder / PAGE}")


def railnet(*arguments: str) -> str:
    """Run a command of Railnet as the cluster's administrator; return what it prints.

    Raises:
        CommandFailed: its exit status is not 0.
    """
    done = subprocess.run(
        [sys.executable, "-m", "railnet", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        env={**os.environ, "KUBECONFIG": str(ADMIN)},
    )
    if done.returncode:
        raise CommandFailed(f"railnet {' '.join(arguments)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _wait_for(imports: list[Future[None]]) -> None:
    for one in imports:
        one.result()


def _is_reviewed() -> bool:
    """Return whether the webhook is asked about a training pod: the API server learns late what the others have written."""
    with ApiRequests() as api:
        answer = api.create(training_pods.of("kubedl/tfjob-worker", "default"), dry_run=True)
    return answer.status == http.client.CREATED and is_patched(answer.document)


def logs(worker: Worker) -> dict[str, bytes]:
    """Return the end of each log of a node, by a path to write it to."""
    found = {}
    for root, pattern in ((RUN / "log", "*.log"), (Path("/var/log/pods"), "*/*/*.log")):
        for path in root.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                found[str(path.relative_to(root))] = path.read_bytes()[-_MOST_LOG_BYTES:]
    return found
