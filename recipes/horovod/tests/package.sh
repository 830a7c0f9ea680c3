# The installed package: every operation on two ranks by each library, under both launchers; the
# cases of both frameworks run in `make test`, on the whole environment.
set -euo pipefail
cd tests # the engine runs a copy of this script above it

horovodrun --check-build
for operations in DDL MPI GLOO; do
  HOROVOD_CPU_OPERATIONS=$operations ddlrun -H localhost:2 -timeout 300 python backends.py
done
horovodrun -np 2 python backends.py
