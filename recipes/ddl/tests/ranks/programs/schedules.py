"""Starts with another -schedule on rank 0 than elsewhere: an error on every rank."""

import os
import sys

import ddl

try:
    ddl.init("-schedule " + ("direct" if os.environ["PMI_RANK"] == "0" else "halving"))
except ddl.DDLValueError as error:
    print(error, file=sys.stderr)
else:
    sys.exit("no error")
