"""Building and testing one rendered output with rattler-build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rattler_build import (
    DebugSession,
    EnvironmentIsolation,
    Package,
    RattlerBuildError,
    RenderedVariant,
    ToolConfiguration,
)

from ddlce.engine.render import plain
from ddlce.errors import WorkError

Log = Callable[[str], None]


class _Progress:
    """rattler-build's callbacks, as lines of a log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def on_log(self, event: object) -> None:
        self._log(plain(str(getattr(event, "message", event))))

    def on_build_step(self, event: object) -> None:
        self._log(f"== {getattr(event, 'message', event)}")

    def on_download_start(self, event: object) -> None:
        """Sources and packages are local files; nothing to say."""

    def on_download_progress(self, event: object) -> None:
        """Sources and packages are local files; nothing to say."""

    def on_download_complete(self, event: object) -> None:
        """Sources and packages are local files; nothing to say."""


def build_output(variant: RenderedVariant, channel: Path, output_dir: Path, log: Log) -> Path:
    """Build one output, untested, into `output_dir`; returns the .conda file.

    Raises:
        WorkError: the environments do not solve, the script fails, or the content is refused.
    """
    with _explained():
        result = variant.run_build(
            tool_config=ToolConfiguration(keep_build=True, test_strategy="skip"),
            output_dir=output_dir,
            channels=[channel.as_uri()],
            progress_callback=_Progress(log),
            package_format="conda:1",  # repacked at the real level
            no_build_id=True,
            no_include_recipe=True,
            env_isolation=EnvironmentIsolation.NONE,  # the worker's own environment is clean
        )
    return Path(result.packages[0])


def test_package(package: Path, channel: Path, log: Log) -> int:
    """Run the tests that a package carries, on the final bytes; returns how many ran.

    Raises:
        WorkError: a test failed.
    """
    with _explained():
        results = Package.from_file(package).run_tests(
            channel=[channel.as_uri()], progress_callback=_Progress(log)
        )
    for result in results:
        if not result.success:
            raise WorkError(f"test {result.test_index} of {package.name} failed")
    return len(results)


def debug_folder(variant: RenderedVariant, channel: Path, output_dir: Path, log: Log) -> Path:
    """Prepare sources and environments of a build without running it; returns its folder.

    Raises:
        WorkError: the environments do not solve.
    """
    with _explained():
        session = DebugSession.create(
            variant,
            output_dir=output_dir,
            channels=[channel.as_uri()],
            progress_callback=_Progress(log),
        )
    return Path(session.work_dir)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (RattlerBuildError, OSError, RuntimeError) as error:
        raise WorkError(plain(str(error))) from error
