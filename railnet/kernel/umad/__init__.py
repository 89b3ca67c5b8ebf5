"""Subnet-management datagrams through the kernel's umad devices: what node is at the other end of a port's cable.

`node_info` has the bytes, `query` sends and receives them. Nothing here changes anything in the fabric: the only method is Get.
"""
