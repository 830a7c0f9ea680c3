# The installed package: one rank without a launcher, two and four with one, and two pretended hosts.
set -euo pipefail
cd tests/package # the engine runs a copy of this script above it

python oracle.py
mpiexec -n 2 python oracle.py
mpiexec -n 4 python oracle.py
DDL_FAKE_HOSTS=2 mpiexec -n 4 python oracle.py
mpiexec -n 2 python -m ddl.info
mpiexec -n 2 python -m ddl.bench --max 64K --repetitions 3
mpiexec -n 3 python -m ddl.bench --dtype bfloat16 --max 4K --repetitions 1
ddlrun --help
