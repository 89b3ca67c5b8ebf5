"""The parts of the daemon that the verbs call; the composition makes them."""

from dataclasses import dataclass
from pathlib import Path

from cni.attachment.attachments import Attachments
from cni.pod_devices import PodDevices
from cni.primary_gc.collector import PrimaryGc
from cni.recovery.sweep import Recovery
from cni.request_cancellation import TimeLimits
from cni.sandbox_locks import PerKey


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of which a daemon has one each.

    `sandboxes` is the lock of each sandbox, by its key. `root` is where the host's mount namespace is seen.
    """

    devices: PodDevices
    attachments: Attachments
    sandboxes: PerKey
    recovery: Recovery
    primary_gc: PrimaryGc
    root: Path
    limits: TimeLimits
