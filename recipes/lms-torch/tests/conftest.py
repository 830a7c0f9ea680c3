"""The package as installed, or the sources beside these tests."""

import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
if find_spec("lms") is None:
    sys.path.insert(0, str(HERE.parent / "src"))
