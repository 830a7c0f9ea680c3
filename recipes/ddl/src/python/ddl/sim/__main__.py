"""`python -m ddl.sim` is `ddl-sim`."""

import sys

from ddl.sim.cli import main

sys.exit(main())
