"""The devices of these tests, before TensorFlow is used."""

import cpus  # noqa: F401
import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: runs in `make test-full` only")
