# usage: build.sh gcc|gxx|sysroot PLATFORM VERSION
set -euo pipefail

tool=$1 platform=$2 version=$3
template=$tool host=none build=none get_gcc=none get_libc=none names=''
case "$platform" in
  linux-64) triple=x86_64-linux-gnu host=x86_64-conda-linux-gnu build=$host ;;
  linux-ppc64le)
    triple=powerpc64le-linux-gnu host=$triple build=x86_64-linux-gnu
    get_libc="  On Debian: apt-get install libc6-dev-ppc64el-cross" ;;
  *) echo "toolchain: no compiler is known for $platform" >&2; exit 1 ;;
esac
# On linux-64, the compilers are packages. On other platforms they are the machine's.
if [ "$target_platform" = linux-64 ]; then
  get_gxx="  Install the package gxx_impl_$platform again"
  if [ "$tool" = gcc ]; then template=own; fi
else
  get_gcc="  On Debian: apt-get install gcc-12. On SUSE: zypper install gcc12.
  On Red Hat: dnf install gcc-toolset-12-gcc"
  get_gxx="  On Debian: apt-get install g++-12. On SUSE: zypper install gcc12-c++.
  On Red Hat: dnf install gcc-toolset-12-gcc-c++"
  if [ "$tool" = gcc ]; then template=machine; fi
fi

# for TEMPLATE: the template with this platform's values
fill() {
  local text
  text=$(<"$RECIPE_DIR/activate/$1")
  text=${text//@FLAGS@/$(<"$RECIPE_DIR/activate/flags.sh")}
  text=${text//@GET_GCC@/"$get_gcc"} text=${text//@GET_GXX@/"$get_gxx"} text=${text//@GET_LIBC@/"$get_libc"}
  text=${text//@TRIPLE@/$triple} text=${text//@MACHINE@/${triple%%-*}} text=${text//@HOST@/$host} text=${text//@BUILD@/$build}
  text=${text//@PLATFORM@/$platform} text=${text//@VERSION@/$version} text=${text//@NAMES@/$names}
  echo "$text"
}

# The variables that the deactivation restores: those that the activation sets.
names=$(fill "$template.sh" | sed -n 's/^ *_ddlce_set \([A-Z_]*\) .*/\1/p' | paste -sd' ')
mkdir -p "$PREFIX/etc/conda/activate.d" "$PREFIX/etc/conda/deactivate.d"
fill "$template.sh" > "$PREFIX/etc/conda/activate.d/activate-${tool}_$platform.sh"
if [ -n "$names" ]; then
  fill deactivate.sh > "$PREFIX/etc/conda/deactivate.d/deactivate-${tool}_$platform.sh"
fi
