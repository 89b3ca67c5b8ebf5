"""Kubelet's interfaces: its API, its device checkpoint, its pod-resources socket.

This module imports nothing: `railnet.kubelet.checkpoint` also runs on the host, inside the plugin executable, where every import costs time. How
Railnet uses kubelet's answers belongs to `deviceplugin` and `cni`.
"""
