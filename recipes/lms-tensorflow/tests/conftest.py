"""The devices of these tests, before TensorFlow is used."""

import cpus  # noqa: F401
