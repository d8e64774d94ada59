"""Load for the lab: Locust users and shapes (HTTP only), the open-loop probe, and the loads of single incidents."""
