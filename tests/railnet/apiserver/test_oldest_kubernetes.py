"""The version that an API server says, and whether Railnet works with it."""

from typing import Any

import pytest

from railnet.apiserver.oldest_kubernetes import KubernetesVersion, said, too_old


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}, (1, 36)),
        ({"major": "1", "minor": "30+", "gitVersion": "v1.30.3-gke.100"}, (1, 30)),
        ({"major": "1"}, None),
        ({"major": "1", "minor": "x"}, None),
        ({"major": [], "minor": {}}, None),
        ({"major": "1", "minor": "9" * 5000}, None),
    ],
)
def test_version_is_read_as_api_servers_say_it(answer: dict[str, Any], version: tuple[int, int] | None) -> None:
    assert said(answer) == version


@pytest.mark.parametrize("version", [KubernetesVersion(1, 30), KubernetesVersion(1, 100), KubernetesVersion(2, 0)])
def test_version_from_the_oldest_on_is_not_too_old(version: KubernetesVersion) -> None:
    assert too_old(version) == ""


@pytest.mark.parametrize("version", [KubernetesVersion(1, 29), KubernetesVersion(1, 9)])
def test_older_version_is_named_with_the_last_railnet_for_it(version: KubernetesVersion) -> None:
    words = f"Kubernetes {version} is older than 1.30, which Railnet needs; 0.5.x is the last version for it"

    assert too_old(version) == words
