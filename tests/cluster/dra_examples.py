"""The examples of docs/dra, with the image and the command that pods of these tests have; and what docs/dra.md shows of a real run."""

import re
from typing import Any

import yaml

from tests.cluster.manifests import ROOT
from tests.cluster.pods import spec

FOLDER = ROOT / "docs/dra"
_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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


def shown() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the page shows: a device of a ResourceSlice, and the same device in the status of a claim."""
    blocks = _BLOCK.findall((ROOT / "docs/dra.md").read_text())
    (device,), (status,) = map(yaml.safe_load, blocks)
    return device, status
