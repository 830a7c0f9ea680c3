"""What the files that people write and read mean: strict pydantic models."""
