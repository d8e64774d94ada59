"""One server seen from outside: its address, its figures, commands and a probe for it, and processes that serve."""
