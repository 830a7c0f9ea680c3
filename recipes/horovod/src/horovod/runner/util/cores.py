# Copyright DDL-CE contributors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
# ==============================================================================
"""A rank's share of its host's cores, as ddlrun gives it.

Frameworks take a thread for every core. Ranks of one host that each do so are several times slower
than ranks that share the cores out. Which cores there are is known on the host alone: horovodrun
puts this file, as a program, before the command of each rank.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence

#: Who tells a rank how many there are on its host: horovodrun with Gloo, Hydra, Open MPI.
_LOCAL_SIZES = ("HOROVOD_LOCAL_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")


def share_cores(command: Sequence[str]) -> list[str]:
    """The command of a rank that takes its share of the cores."""
    return [sys.executable, "-I", __file__, *command]


def limit_threads(environ: MutableMapping[str, str], n_cores: int) -> None:
    """Sets OpenMP's and TensorFlow's numbers of threads, unless the user has set them."""
    told = (environ.get(name, "") for name in _LOCAL_SIZES)
    n_local = next((int(size) for size in told if size.isdigit()), 1)
    share = environ.setdefault("OMP_NUM_THREADS", str(max(1, n_cores // max(1, n_local))))
    if share.isdigit() and int(share) > 0:
        environ.setdefault("TF_NUM_INTRAOP_THREADS", share)
        environ.setdefault("TF_NUM_INTEROP_THREADS", str(max(2, int(share))))


def _main() -> None:
    from ddl.launch.bind import cores_by_node

    cores = cores_by_node(os.sched_getaffinity(0))
    limit_threads(os.environ, sum(map(len, cores.values())))
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"horovodrun: {sys.argv[1]}: {error.strerror}")


if __name__ == "__main__":
    _main()
