"""The APIs of NRI and ttrpc, generated from `proto/` by `scripts/generate`; only this file is written by hand."""
