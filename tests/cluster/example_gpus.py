"""GPUs that do not exist, by dra-example-driver: devices of the first node, below PCIe roots as docs/dra/example-gpus.yaml has them."""

import contextlib
import os
from collections.abc import Iterator

from tests.cluster.claims import devices
from tests.cluster.control_plane import ADMIN
from tests.cluster.dra_examples import documents
from tests.cluster.ground import KUBELET_FOLDER, NODE
from tests.cluster.kubectl import Kubectl
from tests.cluster.process import Program

DRIVER = "gpu.example.com"
GPUS = 8
_SECONDS = 120.0


@contextlib.contextmanager
def example_gpus(kubectl: Kubectl) -> Iterator[None]:
    """Have the GPUs in the block; no claim may have one when it ends."""
    environment = {
        **os.environ,
        "NODE_NAME": NODE,
        "CDI_ROOT": "/var/run/cdi",
        "NUM_DEVICES": str(GPUS),
        "KUBECONFIG": str(ADMIN),
    }
    driver = Program(["dra-example-driver"], environment)
    for name in ("plugins", "plugins_registry"):
        (KUBELET_FOLDER / name).mkdir(exist_ok=True)
    driver.start()
    try:
        driver.wait(lambda: len(devices(NODE, DRIVER)) == GPUS, _SECONDS)
        kubectl.apply(*documents("example-gpus"))
        yield
    finally:
        driver.stop()
        kubectl.delete(*documents("example-gpus"))
