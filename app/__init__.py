"""The service under observation: a storefront that caches per-user fragments in a Redis-compatible server."""
