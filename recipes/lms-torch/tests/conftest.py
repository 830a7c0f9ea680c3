"""The package as installed, or the sources beside these tests."""

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
if find_spec("lms") is None:
    sys.path.insert(0, str(HERE.parent / "src"))

# Hypothesis would leave its notes beside the tests, and so in the recipe.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", tempfile.mkdtemp(prefix="hypothesis-"))
