"""kwok, which does for some nodes what kubelets do: it reports the node, and runs pods, deletes pods, without a container."""

import shutil
from pathlib import Path

from tests.cluster.control_plane import ADMIN
from tests.cluster.process import Program

ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
"""What a node has that is kwok's."""

# Of kwok's own stages those of a node that renews its lease, and of a pod that runs until it is deleted. Without the stage pod-complete,
# which ends a Job's pod as soon as it runs, and pod-delete, which deletes a pod that has not ended.
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
)
_OWN_STAGES = Path(__file__).parent / "kwok_stages.yaml"


class Kwok:
    """One process for all nodes with the annotation. Other nodes are left alone."""

    def __init__(self) -> None:
        ((key, value),) = ANNOTATION.items()
        self.program = Program(
            [
                "kwok",
                f"--kubeconfig={ADMIN}",
                *(f"--config={stage}" for stage in _stages()),
                "--manage-all-nodes=false",
                f"--manage-nodes-with-annotation-selector={key}={value}",
                "--node-lease-duration-seconds=40",
                "--cidr=10.244.0.0/16",
            ]
        )

    def start(self) -> None:
        self.program.start()

    def stop(self) -> None:
        self.program.stop()


def _stages() -> list[Path]:
    program = shutil.which("kwok")
    if program is None:
        raise RuntimeError("there is no kwok: start this by scripts/with-control-plane")
    folder = Path(program).parent / "manifests/kustomize/stage"
    return [*(folder / stage for stage in _STAGES), _OWN_STAGES]
