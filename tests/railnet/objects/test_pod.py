"""Reading a pod."""

from railnet.objects.pod import parse


def test_name_is_the_generate_name_if_the_pod_has_no_name():
    pod = parse({"metadata": {"generateName": "job-0-"}, "spec": {"containers": [{"name": "c"}]}})

    assert pod.name == "job-0-"


def test_owner_is_the_controller_among_the_owners():
    owners = [{"name": "gang", "controller": False}, {"name": "job", "controller": True}]
    pod = parse({"metadata": {"ownerReferences": owners}, "spec": {"containers": [{"name": "c"}]}})

    assert pod.owner == "job"
