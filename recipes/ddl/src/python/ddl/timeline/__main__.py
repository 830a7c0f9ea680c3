"""`python -m ddl.timeline`."""

import sys

from ddl.timeline.cli import main

sys.exit(main())
