"""What a PF, a VF, a GUID and an attachment are, which sandbox owns a VF, and what should change.

Pure: values and decisions only. No I/O, no clock, no log; code that needs the kernel stands in `kernel`.
"""
