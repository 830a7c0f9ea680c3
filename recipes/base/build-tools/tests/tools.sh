# usage: tools.sh NAME: the tool does its work in a root that has nothing but the prefix (and what
# every system has, where it calls that), in a moved prefix, and whatever variables others set.
set -euo pipefail
moved="$PWD/ein Präfix"
mkdir -p "$moved"
cp -al "$CONDA_PREFIX/bin" "$CONDA_PREFIX/x86_64-conda-linux-gnu" "$moved/"
export LD_PRELOAD=/nonexistent/preload.so PERL5LIB=/nonexistent TCL_LIBRARY=/nonexistent

alone() { # COMMAND...: in a root without anything else
  if bwrap --ro-bind / / true 2> bwrap.said; then
    bwrap --unshare-all --ro-bind "$CONDA_PREFIX" "$CONDA_PREFIX" --bind "$PWD" "$PWD" \
      --dir /tmp --dev /dev --proc /proc --chdir "$PWD" --clearenv -- "$@"
  else
    echo "not tried in a root without anything else: $(cat bwrap.said)" >&2
    "$@"
  fi
}
for bin in "$CONDA_PREFIX/bin" "$moved/bin"; do
  case "$1" in
    m4)
      echo 'define(`n'\'', 42)answer n' > in.m4
      test "$(alone "$bin/m4" in.m4)" = "answer 42" ;;
    make)
      printf 'all:\n\t@echo "$(MAKE) $(shell echo ran)"\n' > Makefile
      test "$(unset LD_PRELOAD; "$bin/make")" = "$bin/make ran"
      printf 'all: ; $(info read)\n' > only.mk
      alone "$bin/make" -s -f only.mk | grep -x read ;;
    patch)
      echo old > file
      printf -- '--- a/file\n+++ b/file\n@@ -1 +1 @@\n-old\n+new\n' > change
      alone "$bin/patch" -p1 --fuzz=0 -s -i change
      test "$(cat file)" = new ;;
    perl)
      # What openssl's Configure uses, and compiled modules.
      test "$(alone "$bin/perl" -e 'use Data::Dumper; use FindBin; use File::Spec::Functions; use List::Util "sum";
        use IPC::Cmd; use POSIX; use Digest::SHA "sha1_hex"; use Encode; use Storable;
        print sum(1, 2), " $]"')" = "3 5.036000"
      test "$("$bin/perl" -e 'print $^X')" = "$bin/perl"
      test "$("$bin/perl" -e 'system {$^X} $^X, "-e", "print 7"')" = 7
      if "$bin/perl" -e 'print map {"$_\n"} values %INC' -MFile::Temp -MPOSIX | grep -v "^$bin/../\|^${bin%/bin}/"; then
        echo "perl took the modules above, which are the machine's" >&2
        exit 1
      fi ;;
    pkg-config)
      mkdir -p pc
      printf 'Name: a\nDescription: b\nVersion: 1.5\nLibs: -la\n' > pc/a.pc
      test "$(PKG_CONFIG_LIBDIR=$PWD/pc "$bin/pkg-config" --libs --modversion a | xargs)" = "1.5" ||
        test "$(PKG_CONFIG_LIBDIR=$PWD/pc "$bin/pkg-config" --libs a | xargs)" = "-la"
      alone "$bin/pkg-config" --atleast-pkgconfig-version 0.20 ;;
    tcl)
      # The clock's words come from a module, msgcat.
      echo 'package require Tcl 8.6; puts "[info library] [clock format 0 -gmt 1 -format %Y]"' > in.tcl
      test "$(alone "$bin/tclsh" in.tcl)" = "${bin%/bin}/x86_64-conda-linux-gnu/tools/programs/tcl8.6 1970"
      echo 'puts [join [concat [::tcl::tm::path list] $auto_path] \n]' > in.tcl
      if "$bin/tclsh" in.tcl | grep -v "^$bin/../\|^${bin%/bin}/"; then
        echo "tclsh looks for packages in the folders above, which are the machine's" >&2
        exit 1
      fi ;;
    xz-tools)
      head -c 100000 "$0" > plain
      rm -f plain.xz
      alone "$bin/xz" --keep plain
      alone "$bin/xzcat" plain.xz | cmp - plain
      tar cf some.tar plain && xz="$bin" && PATH="$xz:$PATH" tar cJf some.tar.xz plain && "$bin/xz" -t some.tar.xz ;;
    *) echo "$1: no test" >&2; exit 1 ;;
  esac
done
