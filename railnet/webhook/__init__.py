"""The admission helper as a program: composition, metrics, and `railnet admission explain`."""
