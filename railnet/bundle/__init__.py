"""`railnet bundle`: one archive for a bug report. What is taken is a list (`allowed`); all else, secrets among it, is never taken."""
