"""Runs another program as this rank, and hides its death from mpiexec until all ranks have ended.

mpiexec ends the whole job as soon as a rank dies; here the others shall notice by themselves.
Arguments: the program and its arguments. The folder in SURVIVE counts the ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

# The connection to mpiexec is an open file: the child takes it along.
code = subprocess.run([sys.executable, *sys.argv[1:]], close_fds=False, check=False).returncode
ended = Path(os.environ["SURVIVE"])
(ended / os.environ["PMI_RANK"]).touch()
while len(list(ended.iterdir())) < int(os.environ["PMI_SIZE"]):
    time.sleep(0.05)
sys.exit(1 if code else 0)
