"""The program `ddlce`, and `python -m ddlce`: the CLI, if its modules can be loaded."""

import os
import sys
from typing import NoReturn

#: By these a user has other modules and libraries loaded than the program's own.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")


def main() -> None:
    """Run the CLI; a module that cannot be loaded ends it with one message and exit code 3."""
    try:
        from ddlce.cli.app import end_process
        from ddlce.cli.app import main as run
    except Exception as error:  # a module of another Python may fail in any way
        _end(error)
    try:
        end_process(run)
    except ImportError as error:  # most modules are loaded when a command needs them
        _end(error)


def _end(error: Exception) -> NoReturn:
    reason = " ".join(str(error).split())
    names = [name for name in FOREIGN if os.environ.get(name)]
    hint = f"unset {' and '.join(names)}" if names else "install the program again"
    print(f"error: ddlce cannot load its modules: {reason}\nhint:  {hint}", file=sys.stderr)
    sys.exit(3)


if __name__ == "__main__":
    main()
