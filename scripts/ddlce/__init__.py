"""ddlce: builds, serves, locks, installs and tests the DDL-CE distribution."""

__version__ = "0.1.0"
