"""Exceptions that someone has caught and keeps for a debugger are no failure of the rank.

One argument: who caught it; "uncaught" where the program ends by it, though its own hook shows it.
"""

from __future__ import annotations

import code
import contextlib
import io
import sys
import tempfile
from pathlib import Path

import ddl
import numpy as np

ddl.init()


def divide() -> float:
    return 1 / 0


def own_hook(*_: object) -> None:
    print("the program's own hook", flush=True)


match sys.argv[1]:
    case "console":
        with contextlib.redirect_stderr(io.StringIO()):
            code.InteractiveInterpreter(globals()).runsource("divide()")
    case "console with hook":
        sys.excepthook = own_hook
        code.InteractiveInterpreter(globals()).runsource("divide()")
    case "pytest":
        sys.path.append(sys.argv[2])
        import pytest

        with tempfile.TemporaryDirectory() as folder:
            test = Path(folder) / "test_it.py"
            test.write_text("import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n")
            assert pytest.main(["-q", "-p", "no:cacheprovider", str(test)]) == 0
    case "uncaught":
        sys.excepthook = own_hook
        divide()
assert sys.last_value is not None
assert ddl.allreduce(np.ones(1))[0] == ddl.size()
print("ended well", flush=True)
