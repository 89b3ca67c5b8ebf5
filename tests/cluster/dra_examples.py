"""The examples of docs/dra, with the image and the command that pods of these tests have."""

from typing import Any

import yaml

from tests.cluster.manifests import ROOT
from tests.cluster.pods import spec

FOLDER = ROOT / "docs/dra"


def documents(name: str) -> list[dict[str, Any]]:
    """Return the objects of an example; a pod runs until it is deleted."""
    found = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    (own,) = spec(0)["containers"]
    for one in found:
        if one["kind"] == "Pod":
            for container in one["spec"]["containers"]:
                container.update(image=own["image"], command=own["command"])
            one["spec"]["terminationGracePeriodSeconds"] = spec(0)["terminationGracePeriodSeconds"]
    return found
