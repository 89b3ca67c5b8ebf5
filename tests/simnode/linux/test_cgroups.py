from pathlib import Path

from simnode.linux.cgroups import Hierarchy, hierarchies

# A machine with version 1 and, at another mount point, version 2.
MOUNTINFO = """\
21 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 24 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
33 30 0:29 /inside /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
35 21 0:29 / /mnt/memory rw - cgroup cgroup rw,memory
"""
GROUPS = """\
4:memory:/inside/mine
3:name=systemd:/user.slice
2:cpu,cpuacct:/
0::/session
"""


def test_hierarchies_returns_each_hierarchy_with_the_callers_group():
    folder = Path("/sys/fs/cgroup")

    assert list(hierarchies(MOUNTINFO, GROUPS)) == [
        Hierarchy(folder / "cpu,cpuacct", "cgroup", "cpu,cpuacct", folder / "cpu,cpuacct"),
        Hierarchy(folder / "systemd", "cgroup", "name=systemd", folder / "systemd/user.slice"),
        Hierarchy(folder / "memory", "cgroup", "memory", folder / "memory/mine"),
        Hierarchy(folder / "unified", "cgroup2", "nsdelegate", folder / "unified/session"),
    ]
