"""Batch scripts of ddlrun: `-script SYSTEM` writes one, `-submit` hands it to the batch system."""
