"""One server seen from outside: its address, its figures and the law that reads them, commands and a probe for it."""
