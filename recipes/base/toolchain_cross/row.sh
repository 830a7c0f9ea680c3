# usage: row.sh gcc|gxx|sysroot PLATFORM VERSION: fills the templates by the row of a target
set -euo pipefail

tool=$1 platform=$2
. "$RECIPE_DIR/rows.sh"
values=("HOST=$triple" "TRIPLE=$triple" "MACHINE=${triple%%-*}")
template=$tool
if [ "$target_platform" = linux-64 ]; then
  # The compilers are packages.
  if [ "$tool" = gcc ]; then template=own; fi
  values+=(BUILD=x86_64-linux-gnu
    "GET_GXX=  Install the package gxx_impl_$platform again"
    "GET_LIBC=  Install the package gcc_impl_$platform again")
else
  # They are the machine's, which are found and checked.
  if [ "$tool" = gcc ]; then template=machine; fi
  values+=("GET_GCC=  On Debian: apt-get install gcc-12. On SUSE: zypper install gcc12.
  On Red Hat: dnf install gcc-toolset-12-gcc"
    "GET_GXX=  On Debian: apt-get install g++-12. On SUSE: zypper install gcc12-c++.
  On Red Hat: dnf install gcc-toolset-12-gcc-c++"
    "GET_LIBC=  On Debian: apt-get install libc6-dev-$debian-cross")
fi
bash build.sh "$template" "$tool" "$platform" "$3" "${values[@]}"
