# usage: unpack.sh FOLDER [gcc]: the parts of GCC's source, with Debian's changes, that libstdc++ is
# made from; with `gcc`, those of libgcc too. Reads gcc-orig.tar.gz and packaging/ in this folder.
set -euo pipefail

folder=$1 gcc=${2:-}
mkdir -p "$folder"
# Debian's archive holds upstream's.
inner=$(tar tzf gcc-orig.tar.gz | grep -E '/gcc-[0-9.]+(-dfsg)?\.tar\.xz$')
wanted=('*/compile' '*/config-ml.in' '*/config.guess' '*/config.sub' '*/depcomp' '*/install-sh'
  '*/ltmain.sh' '*/missing' '*/mkinstalldirs' '*/move-if-change' '*/config' '*/include' '*/libbacktrace' '*/libgcc'
  '*/libiberty' '*/libstdc++-v3')
if [ -n "$gcc" ]; then
  wanted+=('*/gcc' '*/libcpp' '*/libdecnumber')
else
  wanted+=('*/gcc/BASE-VER' '*/gcc/DATESTAMP')
fi
tar xzOf gcc-orig.tar.gz "$inner" | tar xJ -C "$folder" --strip-components=1 --anchored --wildcards \
  --no-wildcards-match-slash --exclude='*/*/testsuite/[!M]*' --exclude='*/gcc/ada' --exclude='*/gcc/d' \
  --exclude='*/gcc/doc' --exclude='*/gcc/fortran' --exclude='*/gcc/go' --exclude='*/gcc/po' \
  "${wanted[@]}"

# Fixes of the 12 branch that Debian has, and its change for CUDA; without the parts left out above.
sections() { # FILE: its sections that change libstdc++ itself, with paths below the folder
  awk '/^--- a\/src\// { on = $2 ~ "^a/src/libstdc[+][+]-v3/(config|include|libsupc[+][+]|src)/" } on' "$1"
}
for name in git-updates cuda-float128; do
  sections "packaging/patches/$name.diff" > "$name.part"
  grep -q '^--- ' "$name.part"
  patch -d "$folder" -p2 -s --fuzz=0 --no-backup-if-mismatch < "$name.part"
done
