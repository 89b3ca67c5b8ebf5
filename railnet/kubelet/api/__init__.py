"""Kubelet's gRPC APIs, generated from `proto/` by `scripts/generate`; only this file is written by hand."""
