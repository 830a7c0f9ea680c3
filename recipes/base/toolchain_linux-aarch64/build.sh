# usage: build.sh gcc|gxx|sysroot VERSION, in a folder with the templates of the room toolchain
set -euo pipefail

tool=$1 version=$2 platform=linux-aarch64 triple=aarch64-linux-gnu
template=$tool
if [ "$tool" = gcc ]; then template=machine; fi
get_gcc="  On Debian: apt-get install gcc-12. On SUSE: zypper install gcc12.
  On Red Hat: dnf install gcc-toolset-12-gcc"
get_gxx="  On Debian: apt-get install g++-12. On SUSE: zypper install gcc12-c++.
  On Red Hat: dnf install gcc-toolset-12-gcc-c++"
# On linux-64, the compilers are packages. On aarch64 they are the machine's.
if [ "$target_platform" = linux-64 ]; then
  get_gxx="  Install the package gxx_impl_$platform again"
  if [ "$tool" = gcc ]; then template=own; fi
fi

# for TEMPLATE: the template with this platform's values
fill() {
  local text
  text=$(<"activate/$1")
  text=${text//@FLAGS@/$(<activate/flags.sh)}
  text=${text//@GET_GCC@/"$get_gcc"} text=${text//@GET_GXX@/"$get_gxx"}
  text=${text//@GET_LIBC@/"  Install the package gcc_impl_$platform again"}
  text=${text//@TRIPLE@/$triple} text=${text//@MACHINE@/${triple%%-*}} text=${text//@HOST@/$triple}
  text=${text//@BUILD@/x86_64-linux-gnu} text=${text//@PLATFORM@/$platform} text=${text//@VERSION@/$version}
  text=${text//@NAMES@/"${names:-}"}
  echo "$text"
}

# The variables that the deactivation restores: those that the activation sets.
names=$(fill "$template.sh" | sed -n 's/^ *_ddlce_set \([A-Z_]*\) .*/\1/p' | paste -sd' ')
mkdir -p "$PREFIX/etc/conda/activate.d" "$PREFIX/etc/conda/deactivate.d"
fill "$template.sh" > "$PREFIX/etc/conda/activate.d/activate-${tool}_$platform.sh"
if [ -n "$names" ]; then
  fill deactivate.sh > "$PREFIX/etc/conda/deactivate.d/deactivate-${tool}_$platform.sh"
fi
