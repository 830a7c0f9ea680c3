#!/bin/bash
# Builds the CUDA variants of ddl, ddl-torch and lms-torch on a bare machine with GPUs, an nvcc
# toolkit, a torch with CUDA and nanobind, but no network; then runs gpu_page.py on them.
# Usage, in the repository's root:
#   tests/bench/gpu-machine.sh pack FOLDER             here: puts what that machine lacks into FOLDER
#   tests/bench/gpu-machine.sh run FOLDER [--quick]    there: some ten minutes; the page in $OUT
# FOLDER holds mpich's wheel (pinned as for the benchmarks), pytest's and rich's, and Debian's
# libyaml. OUT is a folder of the environment; without it, ./gpu-page. Where the release
# ddl-ce-gpu is installed, nothing has to be built: run gpu_page.py with its prefix.
set -euo pipefail
verb=$1
folder=$(mkdir -p "$2" && cd "$2" && pwd)
quick=${3:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

# The lines of requirements.lock for the packages in "$@".
pins() {
  awk -v names="$*" 'BEGIN { split(names, list, " "); for (i in list) wanted[list[i]] = 1 }
    /^[^ #]/ { split($1, name, "=="); is_ours = name[1] in wanted } is_ours' requirements.lock
}

if [[ $verb == pack ]]; then
  cat tests/bench/lab/requirements/mpich.txt >"$folder/requirements.txt"
  pins pytest pluggy iniconfig packaging rich markdown-it-py mdurl pygments \
    >>"$folder/requirements.txt"
  python3 -m pip download -q --require-hashes --no-deps --only-binary :all: -d "$folder" \
    -r "$folder/requirements.txt"
  (cd "$folder" && apt-get download libyaml-dev libyaml-0-2)
  du -sh "$folder"
  exit
fi

# The system's compiler, whose C++ library is the one that torch loads: a compiler of one's own may
# link another statically, and both in one process crash at the first stream.
unset CC CXX

out=${OUT:-$root/gpu-page}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
venv=$work/venv
for package in "$folder"/*.deb; do dpkg -x "$package" "$work/debs"; done
python3 -m venv --without-pip "$venv"
# The machine's own torch, NCCL and nanobind, seen from the new environment.
theirs=$(python3 -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])')
echo "$theirs" >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/theirs.pth"
python3 -m pip --python "$venv/bin/python" install -q --no-index --no-deps "$folder"/*.whl
python=$(command -v python3)
export PATH=$venv/bin:${python%/*}:$PATH
yaml=$(dirname "$(find "$work/debs" -name 'libyaml.so' | head -n 1)")
export LD_LIBRARY_PATH=$yaml${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
toolkit=${CUDA_HOME:-/usr/local/cuda}

# Installs recipes/$1, with the other arguments for CMake.
build() {
  local name=$1
  shift
  cmake -S "recipes/$name/src" -B "$work/$name" -G Ninja --log-level=WARNING \
    -DCMAKE_INSTALL_PREFIX="$venv" -DCMAKE_INSTALL_LIBDIR=lib \
    -DPython_EXECUTABLE="$venv/bin/python" -DCUDAToolkit_ROOT="$toolkit" \
    -DCMAKE_PREFIX_PATH="$venv;$toolkit;$theirs/nvidia/nccl;$theirs/nvidia/cu13" \
    -DCMAKE_INCLUDE_PATH="$toolkit/include/cccl" "$@" &&
    cmake --build "$work/$name" && cmake --install "$work/$name" >"$work/$name.installed"
}

build ddl -DDDL_CUDA=ON -DMPI_C_COMPILER="$venv/bin/mpicc" \
  -DYAML_INCLUDE_DIR="$work/debs/usr/include" -DYAML_LIBRARY="$yaml/libyaml.so"
for name in ddl-torch lms-torch; do
  # They are for some versions of torch; the page says which of them is not there.
  build "$name" || echo "not built: $name" >&2
done
python -m ddl.info
status=0
python tests/bench/gpu_page.py --prefix "$venv" --out "$out" $quick || status=$?
exit "$status"
