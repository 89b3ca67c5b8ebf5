"""Check that the pod's containers will get the RDMA devices of the VFs that ADD attaches.

kubelet keeps the answer to Allocate for the pod's life. If a VF's driver is bound again in between, the VF has another RDMA
device and other character devices: the container would open the devices of another VF.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from railnet.errors import Unusable
from railnet.kernel.files import below
from railnet.kubelet.checkpointed_responses import ContainerAllocation
from railnet.vf.inventory import DeviceNode
from railnet.vf.record import Attachment

_FOLDER = "/dev/infiniband"
_REMEDY = "its driver was bound again since kubelet asked; delete the pod, so that kubelet asks anew"


def check(answers: Iterable[ContainerAllocation], attachments: Iterable[Attachment], root: Path) -> None:
    """Compare each VF's RDMA device with the answer to its container's Allocate; `root` is the host's mount namespace.

    The answer for a pool without RDMA has no device nodes, and then there is nothing to compare.

    Raises:
        Unusable: they differ; the message names the first difference.
    """
    by_vf = [
        (attachment, answer) for answer in answers for attachment in attachments if str(attachment.vf) in answer.ids
    ]
    for attachment, answer in by_vf:
        if answer.device_nodes:
            _check(attachment, attachment.uverbs, answer, root)


def _check(attachment: Attachment, uverbs: DeviceNode | None, answer: ContainerAllocation, root: Path) -> None:
    # As while its driver is bound again: its next device is unknown, and the nodes may be another VF's.
    if uverbs is None:
        raise Unusable(
            f"VF {attachment.vf} has no RDMA device now, but its container gets {_listed(answer.device_nodes)}: is its driver's "
            "RDMA module loaded? kubelet tries again"
        )
    path = f"{_FOLDER}/{uverbs.name}"
    if path not in answer.device_nodes:
        raise Unusable(
            f"VF {attachment.vf} has {path} now, but its container gets {_listed(answer.device_nodes)}: {_REMEDY}"
        )
    hcas = _hcas(answer)
    if hcas and attachment.rdma not in {hca.partition(":")[0] for hca in hcas}:
        raise Unusable(
            f"VF {attachment.vf} is {attachment.rdma} now, but its container gets NCCL_IB_HCA={_listed(hcas)}: {_REMEDY}"
        )
    device_numbers = _numbers(below(root, path))
    if device_numbers != (uverbs.major, uverbs.minor):
        numbers = "no character device" if device_numbers is None else f"{device_numbers[0]}:{device_numbers[1]}"
        raise Unusable(
            f"{path} on this node is {numbers}, but VF {attachment.vf} has {uverbs.major}:{uverbs.minor}: does udev run? kubelet tries again"
        )


def _hcas(answer: ContainerAllocation) -> list[str]:
    """Return device and port of each HCA, as `mlx5_4:1`; the list is empty if the answer names none.

    The rail that may follow (docs/decisions/0059) is not compared: another number costs speed only.
    """
    value = answer.envs.get("NCCL_IB_HCA", "").removeprefix("=")
    return [":".join(entry.split(":")[:2]) for entry in value.split(",")] if value else []


def _numbers(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(values))
