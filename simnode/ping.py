"""One ping from a pod's network namespace, with a time limit."""

import subprocess
from pathlib import Path

ANSWER_SECONDS = 20  # an answer may be that late on a busy machine
SILENT_SECONDS = 1
"""How long an answer is awaited that should not come, or that is asked for again and again."""

_GRACE_SECONDS = 5


def ping(netns: Path, address: str, *, ifname: str | None = None, seconds: int = ANSWER_SECONDS) -> bool:
    """Return whether `address` answers one echo request in time; it is sent through `ifname` if that is given."""
    through = ["-I", ifname] if ifname else []
    command = ["nsenter", f"--net={netns}", "ping", "-c", "1", "-W", str(seconds), "-q", *through, address]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds + _GRACE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
