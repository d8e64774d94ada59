"""Read-only diagnosis of a running server: what takes its time, what the evidence shows, and what it refutes.

address -> questions -> watch (questions and an open-loop prober) -> window -> findings -> diagnosis, pages, terminal
"""
