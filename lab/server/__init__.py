"""A server seen from outside: its address, its figures and the law that judges them, commands and a probe for it."""
