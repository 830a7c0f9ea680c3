set -euo pipefail

gcc=x86_64-conda-linux-gnu/gcc
triple=x86_64-linux-gnu
from=$BUILD_PREFIX/x86_64-conda-linux-gnu
to=$PREFIX/$gcc
mkdir -p "$PREFIX/bin" "$to/include/$triple/c++"
cp -a "$from/sysroot" "$to/"
# Where GCC looks for them, relative to itself.
cp -a "$from/include/c++" "$to/include/"
ln -s "../../c++/12/$triple" "$to/include/$triple/c++/12"

# libgomp by its name: a process has one already, PyTorch's or that of the package libgomp.
python3 -E -B - libgomp.deb licence.deb << 'PYTHON'
import io, pathlib, sys, tarfile

for data in (pathlib.Path(path).read_bytes() for path in sys.argv[1:]):
    place = 8
    while place < len(data):
        head = data[place : place + 60].decode()
        size = int(head[48:58])
        if head.startswith("data.tar"):
            archive = io.BytesIO(data[place + 60 : place + 60 + size])
            tarfile.open(fileobj=archive).extractall("libgomp")
        place += 60 + size + size % 2
PYTHON
export CC=$BUILD_PREFIX/bin/x86_64-conda-linux-gnu-gcc
PYTHONPATH=$PWD/scripts python3 -s -B - "$(find libgomp -name 'libgomp.so.1.*')" "$to/sysroot/usr/lib" << 'PYTHON'
import os, sys
from pathlib import Path

from stubs import make_stub
from symbols import read_library

make_stub(read_library(Path(sys.argv[1])), "libgomp.so.1", Path(sys.argv[2]), os.environ["CC"])
PYTHON
ln -s libgomp.so.1 "$to/sysroot/usr/lib/libgomp.so"

for name in cc gcc; do ln -s x86_64-conda-linux-gnu-gcc "$PREFIX/bin/$name"; done
for name in c++ g++; do ln -s x86_64-conda-linux-gnu-g++ "$PREFIX/bin/$name"; done

# The texts that the copied files are under.
mkdir licenses
cp -L copyright/* licenses/
cp libgomp/usr/share/doc/gcc-12-base/copyright licenses/gcc
