"""Grafana: provisioning files, and dashboards that Python makes (`python -m grafana.generate`)."""
