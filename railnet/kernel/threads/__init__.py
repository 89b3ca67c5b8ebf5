"""Threads for system calls that may never return, such as reads and writes of a card's files: bounded in number, waited for with a time limit."""
