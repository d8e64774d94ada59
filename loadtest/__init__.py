"""Load for the lab: Locust users and shapes (HTTP only), and the open-loop probe (a process of its own)."""
