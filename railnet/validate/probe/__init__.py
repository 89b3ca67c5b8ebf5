"""The probe: its program, its pods and other objects, and how its answers are read."""
