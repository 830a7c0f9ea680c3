"""The command `ddlrun`."""

import os
import shlex
import signal
import sys
from functools import partial

from ddl.launch.errors import LaunchError
from ddl.launch.options import USAGE, Options, names_hosts, parse
from ddl.launch.sink import hold_standard_files


def main(arguments: list[str] | None = None) -> int:
    """Runs `ddlrun` with these words (default: the process's own); the exit status."""
    hold_standard_files()
    try:
        words = sys.argv[1:] if arguments is None else arguments
        options = parse(words)
        if options.help:
            print(USAGE, end="")
            return 0
        if options.version:
            print(f"ddlrun {_version()}")
            return 0
        if options.batch:
            from ddl.launch.script.command import run_script

            print(run_script(options, os.environ), end="")
            return 0
        if options.show_topology:
            from ddl.launch.batch import reserved_hosts
            from ddl.launch.show import show

            reserved = [] if names_hosts(options) else reserved_hosts(os.environ)
            print(show(options, os.environ, reserved))
            return 0
        return _launch(options, words)
    except LaunchError as error:
        print(f"ddlrun: error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before there is a job; run.py has handlers of its own
        return 128 + signal.SIGINT


def _launch(options: Options, words: list[str]) -> int:
    if options.launcher == "jsrun":
        from ddl.launch.jsrun import show_jsrun

        print(show_jsrun(options, os.environ))
        return 0
    from ddl.launch.ask import ask_gpus
    from ddl.launch.hydra import HydraLauncher
    from ddl.launch.layout import make_job

    launcher = HydraLauncher(options)
    reserved = [] if names_hosts(options) else launcher.reserved_hosts(os.environ)
    if options.stage:
        from ddl.launch.stage import check_words

        check_words(options, os.environ)
    ask = None if options.dry_run else partial(ask_gpus, options=options, environ=os.environ)
    job = make_job(options, os.environ, reserved, ask)
    if options.stage:
        from ddl.launch.stage import stage_and_restart

        return stage_and_restart(options, job, words)
    if not options.dry_run:
        launcher.check(job)
    if options.dry_run or options.verbose:
        variables = [f"{name}={job.environment[name]}" for name in job.added]
        line = shlex.join(["env", *variables, *launcher.command(job)])
        print(line, file=sys.stdout if options.dry_run else sys.stderr, flush=True)
    if options.dry_run:
        return 0
    from ddl.launch.run import Run

    return Run(job, launcher, options.timeout, options.verbose, options.grace).supervise()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ddl")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
