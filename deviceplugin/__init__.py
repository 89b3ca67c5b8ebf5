"""The device plugin: which VFs of this node kubelet may give to pods, and what a container gets with one.

Attaching a VF to a pod is `cni`'s; both look at the one VF table (`vf.table`), which `railnet` builds.
"""
