"""Paging: copies between device and host, the storages that move, and host memory for them."""
