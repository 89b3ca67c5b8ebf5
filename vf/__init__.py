"""What a PF, a VF, a GUID and an attachment are, who owns a VF, and what should change.

Pure: values and decisions only. No I/O, no clock, no log; whoever needs the kernel imports `kernel`.
"""
