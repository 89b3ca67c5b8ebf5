"""Railnet's CNI configuration: what stands in it, how it is kept, and in which folder."""
