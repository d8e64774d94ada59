"""A read-only look at somebody's own server: who has its time, what the evidence bears, and what it refutes.

address -> questions -> watch (questions and an open-loop prober) -> window -> findings -> diagnosis, pages, terminal
"""
