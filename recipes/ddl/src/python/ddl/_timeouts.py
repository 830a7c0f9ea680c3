"""Waits of the ranks that the library's own timeout (`ddl.set_timeout`) does not limit."""

#: Seconds that ranks wait for one that works alone: it saves a checkpoint, or goes on after the
#: others have ended.
ALONE_TIMEOUT_S = 86400.0
