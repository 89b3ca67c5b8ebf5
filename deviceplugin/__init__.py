"""The device plugin: the VFs of this node that kubelet may allocate to pods, and the device nodes and environment of a container.

Attaching a VF to a pod belongs to `cni`. Both packages use one VF table (`railnet.vf.vf_table`), which `railnet` builds.
"""
