"""The admission helper as a program: its composition, its metrics, and `railnet admission explain`."""
