"""Kubernetes' own objects, as the API server sends them: each part has one reader here, and no other room reads it again.

Pure, and below all rooms but `vf`, of which only the errors are imported. Nothing here knows a training job, a rail or a gang.

A reader is made for one of two senders. The API server has checked what Kubernetes validates: in such a part, a value of another type raises
KeyError, TypeError, AttributeError or ValueError. An annotation, and a part that Kubernetes does not validate, may come from anyone: such a
value counts as absent, or is refused with the field's name.
"""
