# Sourced with `platform` set: the values of a target. Each target has a row.
case "$platform" in
  linux-ppc64le) triple=powerpc64le-linux-gnu debian=ppc64el machine=ppc64le elf=PowerPC64 ;;
  *) echo "toolchain_cross: no compiler is known for $platform" >&2; exit 1 ;;
esac
