"""The one error of the launcher."""


class LaunchError(Exception):
    """Bad input, or a machine that cannot run the job: one sentence, and what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class HostError(LaunchError):
    """The same of a job's host: it cannot be used, or has not answered."""
