"""Which cluster a command has asked, for its report. Pure."""

from typing import NamedTuple
from urllib.parse import urlsplit


class ClusterName(NamedTuple):
    """A cluster as the user's kubeconfig names it.

    Attributes:
        server: the host and port of the API server; no user, password or path of the URL.
        context: of the kubeconfig; empty if the command has the rights of its pod.
    """

    server: str = ""
    context: str = ""


def server_of(url: str) -> str:
    """Return the host and port of a URL; empty if it has none."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""
