"""The webhook's certificates: made, stored in a Secret, trusted by the API server, renewed in time.

`renewal` decides, `reconcile_step` acts on the objects of `cluster_objects`, `renewal_loop` repeats that while the server runs. `authority`
makes and signs certificates; `secret_content` reads and writes the Secret's entries, `ca_bundle` the webhook configuration's. `folder` is the
alternative: an administrator's own certificates in files. docs/decisions/0031 says why.
"""
