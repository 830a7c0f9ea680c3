"""The documents of the project, for the tests that read them."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).parents[2]
DOCUMENTS = [*sorted(REPO.glob("*.md")), *sorted((REPO / "docs").rglob("*.md"))]
NAMES = [str(path.relative_to(REPO)) for path in DOCUMENTS]

#: A block of code with its language.
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
