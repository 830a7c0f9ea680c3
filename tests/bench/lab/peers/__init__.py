"""The libraries that are measured, one file each."""
