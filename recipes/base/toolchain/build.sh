# usage: build.sh gcc|gxx|sysroot PLATFORM VERSION
set -euo pipefail

tool=$1 platform=$2 version=$3
case "$platform" in
  linux-64)
    triple=x86_64-linux-gnu apt_gcc=gcc-12 apt_gxx=g++-12 apt_libc=libc6-dev
    enable="then: . /opt/rh/gcc-toolset-$version/enable"
    dnf_gcc="gcc-toolset-12-gcc, $enable" dnf_gxx="gcc-toolset-12-gcc-c++, $enable"
    zypper_gcc=gcc12 zypper_gxx=gcc12-c++ ;;
  linux-ppc64le)
    triple=powerpc64le-linux-gnu apt_gcc=gcc-powerpc64le-linux-gnu
    apt_gxx=g++-powerpc64le-linux-gnu apt_libc=libc6-dev-ppc64el-cross
    dnf_gcc=gcc-powerpc64le-linux-gnu dnf_gxx=gcc-c++-powerpc64le-linux-gnu
    zypper_gcc=cross-ppc64le-gcc12 zypper_gxx=cross-ppc64le-gcc12 ;;
  *) echo "toolchain: no compiler is known for $platform" >&2; exit 1 ;;
esac

# for NAME TEMPLATE: the template with this platform's values
fill() {
  sed -e "s/@TRIPLE@/$triple/g" -e "s/@MACHINE@/${triple%%-*}/g" -e "s/@PLATFORM@/$platform/g" \
    -e "s/@VERSION@/$version/g" -e "s/@APT_GCC@/$apt_gcc/g" -e "s/@APT_GXX@/$apt_gxx/g" \
    -e "s/@APT_LIBC@/$apt_libc/g" -e "s|@DNF_GCC@|$dnf_gcc|" -e "s|@DNF_GXX@|$dnf_gxx|" \
    -e "s/@ZYPPER_GCC@/$zypper_gcc/g" -e "s/@ZYPPER_GXX@/$zypper_gxx/g" -e "s/@NAMES@/$names/g" "$RECIPE_DIR/activate/$1"
}

# The variables that the deactivation restores: those that the activation sets.
names=$(sed -n 's/^ *_ddlce_set \([A-Z_]*\) .*/\1/p' "$RECIPE_DIR/activate/$tool.sh" | paste -sd' ')
mkdir -p "$PREFIX/etc/conda/activate.d" "$PREFIX/etc/conda/deactivate.d"
fill "$tool.sh" > "$PREFIX/etc/conda/activate.d/activate-${tool}_$platform.sh"
if [ -n "$names" ]; then
  fill deactivate.sh > "$PREFIX/etc/conda/deactivate.d/deactivate-${tool}_$platform.sh"
fi
