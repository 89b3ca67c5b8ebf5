"""The pod-resources client with a kubelet's socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from railnet.errors import NotReady
from railnet.kubelet import podresources
from railnet.kubelet.api import podresources_pb2 as api
from railnet.kubelet.api import podresources_pb2_grpc as grpc_api
from railnet.kubelet.dra_driver_name import DRIVER

RAIL = "rdma/ib_vf"


def a_pod(name: str = "train-0", namespace: str = "ml", **containers: dict[str, list[str]]) -> api.PodResources:
    return api.PodResources(
        name=name,
        namespace=namespace,
        containers=[
            api.ContainerResources(
                name=container,
                devices=[api.ContainerDevices(resource_name=r, device_ids=ids) for r, ids in resources.items()],
            )
            for container, resources in containers.items()
        ],
    )


class Kubelet(grpc_api.PodResourcesListerServicer):
    def __init__(self, *pods: api.PodResources, delay_seconds: float = 0) -> None:
        self.pods = pods
        self.delay_seconds = delay_seconds

    async def List(self, request, context):
        await asyncio.sleep(self.delay_seconds)
        return api.ListPodResourcesResponse(pod_resources=self.pods)

    async def Get(self, request, context):
        raise NotImplementedError

    async def GetAllocatableResources(self, request, context):
        raise NotImplementedError


@asynccontextmanager
async def serving(kubelet: Kubelet, socket: Path) -> AsyncIterator[None]:
    server = grpc.aio.server()
    grpc_api.add_PodResourcesListerServicer_to_server(kubelet, server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace=None)


def ask(kubelet: Kubelet, folder: Path, timeout_seconds: float = 20) -> list[tuple[str, str]]:
    return list(listed(kubelet, folder, timeout_seconds).devices)


def listed(kubelet: Kubelet, folder: Path, timeout_seconds: float = 20) -> podresources.Listed:
    async def main() -> podresources.Listed:
        async with serving(kubelet, folder / "kubelet.sock"):
            return await podresources.devices(folder / "kubelet.sock", "ml", "train-0", {RAIL}, timeout_seconds)

    return asyncio.run(main())


def test_devices_are_united_over_the_containers(tmp_path: Path) -> None:
    kubelet = Kubelet(a_pod(init={RAIL: ["b"]}, main={RAIL: ["b", "a"], "nvidia.com/gpu": ["g"]}))

    assert ask(kubelet, tmp_path) == [(RAIL, "a"), (RAIL, "b")]


def test_devices_of_claims_are_listed_by_their_driver(tmp_path: Path) -> None:
    pod = a_pod(main={RAIL: ["a"]})
    resources = [
        api.ClaimResource(driver_name=driver, device_name=device)
        for driver, device in ((DRIVER, "pci-0000-03-00-1"), ("gpu.example.com", "gpu-0"))
    ]
    pod.containers[0].dynamic_resources.add(claim_name="train-vf", claim_namespace="ml", claim_resources=resources)

    assert ask(Kubelet(pod), tmp_path) == [(DRIVER, "pci-0000-03-00-1"), (RAIL, "a")]


@pytest.mark.parametrize("has_claims", [True, False])
def test_kubelet_lists_claims_if_it_names_one_of_any_pod(tmp_path: Path, has_claims: bool) -> None:
    other = a_pod("train-1", main={RAIL: ["b"]})
    if has_claims:
        other.containers[0].dynamic_resources.add(claim_name="gpu", claim_namespace="ml")

    assert listed(Kubelet(a_pod(main={}), other), tmp_path) == ([], has_claims)


def test_devices_are_only_those_of_the_pod(tmp_path: Path) -> None:
    kubelet = Kubelet(a_pod(namespace="other", main={RAIL: ["a"]}), a_pod("train-1", main={RAIL: ["b"]}))

    assert ask(kubelet, tmp_path) == []


def test_devices_ignore_a_pod_of_the_same_name_without_devices(tmp_path: Path) -> None:
    kubelet = Kubelet(a_pod(main={}), a_pod(main={RAIL: ["a"]}))

    assert ask(kubelet, tmp_path) == [(RAIL, "a")]


def test_devices_are_not_ready_when_two_pods_of_the_same_name_have_devices(tmp_path: Path) -> None:
    kubelet = Kubelet(a_pod(main={RAIL: ["a"]}), a_pod(main={RAIL: ["b"]}))

    with pytest.raises(NotReady, match="lists 2 pods ml/train-0"):
        ask(kubelet, tmp_path)


def test_devices_are_not_ready_when_kubelet_is_slow(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="Deadline Exceeded"):
        ask(Kubelet(delay_seconds=5), tmp_path, timeout_seconds=0.1)


def test_devices_are_not_ready_when_the_socket_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"kubelet does not list a pod's devices at .*missing\.sock"):
        asyncio.run(podresources.devices(tmp_path / "missing.sock", "ml", "train-0", {RAIL}, 1))
