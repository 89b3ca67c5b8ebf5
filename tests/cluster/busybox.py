"""The image of most pods, and of all pods' sandboxes: Debian's static busybox."""

from pathlib import Path

from tests.cluster import images

NAME = "docker.io/local/busybox:1"


def write(archive: Path) -> None:
    """Write the image.

    Raises:
        FileNotFoundError: PATH has no busybox.
    """
    images.busybox(NAME).write(archive)
