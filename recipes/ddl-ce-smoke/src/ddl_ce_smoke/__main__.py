"""`python -m ddl_ce_smoke` is `ddlce-smoke`."""

import sys

from ddl_ce_smoke.cli import main

sys.exit(main())
