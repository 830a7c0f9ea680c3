"""Sources: the store by sha256, the clients that fill it, and the making of lock entries."""

from ddlce.sources.fetch import Fetched, FetchProgress, fetch_sources
from ddlce.sources.store import SourceStore

__all__ = ["FetchProgress", "Fetched", "SourceStore", "fetch_sources"]
