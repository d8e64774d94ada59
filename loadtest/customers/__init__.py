"""HTTP load on the storefront, carried by Locust."""
