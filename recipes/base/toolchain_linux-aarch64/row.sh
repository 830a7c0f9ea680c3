# usage: row.sh gcc|gxx|sysroot VERSION, in a folder with the templates and toolchain's build.sh
set -euo pipefail

tool=$1 platform=linux-aarch64 triple=aarch64-linux-gnu
template=$tool
values=("HOST=$triple" "TRIPLE=$triple" "MACHINE=${triple%%-*}" BUILD=x86_64-linux-gnu
  "GET_LIBC=  Install the package gcc_impl_$platform again")
# On linux-64, the compilers are packages. On aarch64 they are the machine's.
if [ "$target_platform" = linux-64 ]; then
  if [ "$tool" = gcc ]; then template=own; fi
  values+=("GET_GXX=  Install the package gxx_impl_$platform again")
else
  if [ "$tool" = gcc ]; then template=machine; fi
  values+=("GET_GCC=  On Debian: apt-get install gcc-12. On SUSE: zypper install gcc12.
  On Red Hat: dnf install gcc-toolset-12-gcc"
    "GET_GXX=  On Debian: apt-get install g++-12. On SUSE: zypper install gcc12-c++.
  On Red Hat: dnf install gcc-toolset-12-gcc-c++")
fi
bash build.sh "$template" "$tool" "$platform" "$2" "${values[@]}"
