"""Kubelet's interfaces: its API, its device checkpoint, its pod-resources socket.

Nothing is imported here: `kubelet.checkpoint` also runs on the host, inside the plugin executable, where every import
counts. What Railnet does with an answer of kubelet's belongs to `deviceplugin` and `cni`.
"""
