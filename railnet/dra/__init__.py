"""What kubelet and the scheduler ask through dynamic resource allocation: ResourceSlices, claims, and the driver's services.

The same VFs as in `deviceplugin`, by another way; a node offers its VFs by one of the two (`offer` of node.yaml).
"""
