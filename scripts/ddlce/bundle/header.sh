# What `sh FILE` runs, after the lines with the file's own values that `write.py` puts before it.
# Only POSIX sh, tar, sed and coreutils. Nothing is written before `check` has passed, and no bit
# of this text can be changed to avoid that. So the result is compared twice, `exit` stands beside
# what ends with it, and until then the current folder is one in which a changed redirection makes
# no file.
# shellcheck shell=sh
# shellcheck disable=SC2154 # title, env, ... are set by the lines before
set -u

say() { printf '%s\n' "$*"; }

fail() { # message, hint, exit status
  printf 'error: %s\nhint:  %s\n' "$1" "$2" >&2
  exit "$3"
}

usage() {
  say "$title for $platform, in one file. It needs sh, tar, sed and coreutils, and no network.

  sh FILE --root DIR              check and install; DIR is DDLCE_ROOT or ~/$default_root
  sh FILE --list                  the packages in it
  sh FILE --verify                check every byte of the file
  sh FILE --extract channel DIR   the packages and their index: a channel for conda, mamba, pixi

  --older      install it beside a newer release, which stays the default one
  --no-default install it as a candidate, of which users see nothing: ddlce env default offers it
  --no-smoke   leave out the tests at the end"
}

damaged() {
  fail "$file is damaged: its sha256 is not the one at its end" "copy it again; nothing was written" 4
}

check() { # every byte of the file; no redirection, which a changed byte could turn into another
  found=$(command -v sha256sum) || fail "there is no sha256sum" "install coreutils" 3
  found=$(wc -c "$file")
  found=${found%% *}
  [ "$found" -eq "$size" ] || fail "$file has $found bytes, and the bundle has $size" \
    "it was cut off, or something was added: copy it again; nothing was written" 4 || exit 4
  wanted=$(tail -c 65 "$file")
  found=$(head -c "$((size - 65))" "$file" | sha256sum)
  found=${found%% *}
  [ "$found" = "$wanted" ] || { damaged; exit 4; }
  case $found in "$wanted") checked=${#found} ;; *) damaged; exit 4 ;; esac
}

unpack() { # folder, what cannot be done otherwise; from its input
  said=$(tar -xf - -C "$1" 2>&1) ||
    fail "$2: $(say "$said" | head -n 1)" "free some space, or choose another folder" 3
}

part() { # first byte, bytes
  tail -c "+$(($1 + 1))" "$file" | head -c "$2"
}

extract() { # what, folder
  [ "$1" = channel ] || fail "--extract $1: only 'channel' can be extracted" "see: sh $file --help" 2
  [ ! -e "$2" ] || fail "$2 is there already" "name a new folder" 2
  stage=$2.unpacking # a trap sees no arguments of a function
  mkdir "$stage" || fail "cannot make $stage" "remove it, or name another folder" 3
  trap 'rm -rf "$stage"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  enough "$stage" "$((size / 1024))" "choose another folder"
  part "$((start + first))" "$((size - 65 - start - first))" | unpack "$stage" "cannot write $2" || exit 3
  mv "$stage/channel" "$2" || fail "cannot write $2" "see the message above" 3
  say "$2 is a channel: file://$(cd "$2" && pwd -P)"
}

enough() { # folder, KiB, what else to do
  # The mount point comes last, and may have spaces; what stands before has none.
  free=$(df -Pk "$1" 2>/dev/null | tail -n 1 | sed -n 's/^.* \([0-9][0-9]*\)  *[0-9][0-9]*%.*$/\1/p')
  [ -z "$free" ] || [ "$free" -ge "$2" ] ||
    fail "$1 has $((free / 1024)) MB free, and $title needs $(($2 / 1024)) MB" \
      "free some space, or $3; nothing was written" 3
}

fits() { # the machine
  [ "$(uname -s) $(uname -m)" = "Linux $machine" ] ||
    fail "$title is for Linux on $machine, and this machine is $(uname -s) on $(uname -m)" \
      "get the file for this machine" 3
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 1)
  found=$(say "$found" | sed -n 's/^.*[^0-9]\([0-9][0-9]*\.[0-9][0-9]*\).*$/\1/p')
  [ -n "$found" ] || fail "$title needs glibc $glibc, and none was found" "use a system with glibc" 3
  [ "$((${found%.*} * 1000 + ${found#*.}))" -ge "$((${glibc%.*} * 1000 + ${glibc#*.}))" ] ||
    fail "$title needs glibc $glibc, and this machine has $found" "use a newer system" 3
}

may_write() { # the root; makes its path one without links as far as it is there
  above=$root
  while [ ! -e "$above" ]; do
    above=${above%/*}
    above=${above:-/}
  done
  [ -d "$above" ] || fail "$above is a file, not a folder" "choose another root with --root" 3
  [ -w "$above" ] && [ -x "$above" ] ||
    fail "$above may not be written by you" "choose another root with --root, or ask its owner" 3
  rest=${root#"$above"}
  above=$(cd "$above" && pwd -P) || exit 3
  root=$above$rest
  guarded
}

guarded() { # the rule of ddlce's ownership.py, short: before ddlce can tell, its Python runs there
  me=$(id -u) step=$above theirs=''
  while :; do
    # shellcheck disable=SC2012,SC2046 # of the line, only the mode and the owner's number are used
    set -- $(ls -ldn "$step")
    case ${DDLCE_TRUST-}$1 in d???????w[!tT]*)
      fail "$step may be changed by everybody" \
        "take that away (chmod o-w $step), or choose another root with --root" 3 ;;
    esac
    case " $me 0 ${SUDO_UID:-0} " in
      *" $3 "*) case $1 in d????w[sS]*) theirs='' ;; esac ;;
      *) [ "$me" != 0 ] && [ "$step" != "$root" ] || theirs=${theirs:-$step}
        case $me$1 in [!0]*d????w[sS]*) theirs='' ;; esac ;;
    esac
    [ "$step" != / ] || break
    step=${step%/*}
    step=${step:-/}
  done
  [ -z "$theirs" ] || [ -n "${DDLCE_TRUST-}" ] ||
    fail "$theirs belongs to another user" "choose another root with --root, or become its owner" 3
}

clear_away() { # what killed runs on this machine left
  for left in "$root"/.unpack-*; do
    case $left in "$root/.unpack-$(uname -n)-"*) ;; *) continue ;; esac
    # In a container, each run may have the same number: this one's is then of a killed run.
    [ "${left##*-}" != $$ ] && kill -0 "${left##*-}" 2>/dev/null || rm -rf "$left"
  done
}

install() {
  fits
  root=$(from_here "$root")
  may_write
  [ -e "$root/envs/$env/$prefix/conda-meta/ddl-ce.origin" ] || enough "$above" "$need" "choose another folder with --root"
  mkdir -p "$root" || fail "cannot make $root" "choose another root with --root" 3
  clear_away
  stage=$root/.unpack-$(uname -n)-$$
  mkdir "$stage" || fail "cannot make $stage" "choose another root with --root" 3
  # A root that this run has made is removed again where nothing came into it.
  trap 'rm -rf "$stage"; [ "$above" = "$root" ] || rmdir "$root" 2>/dev/null' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  { say '#!/bin/sh' >"$stage/try"; } 2>/dev/null && chmod 755 "$stage/try" ||
    fail "$stage/try cannot be written" "free some space, or choose another root with --root" 3
  "$stage/try" 2>/dev/null || fail "$root is on a file system that is mounted noexec" \
    "choose another root with --root" 3
  { part "$start" "$first"; head -c 1024 /dev/zero; } | unpack "$stage" "cannot unpack into $stage" || exit 3
  unset LD_LIBRARY_PATH PYTHONHOME PYTHONPATH
  said=$("$stage/boot/bin/python" -I -S "$stage/boot/unpack.py" "$file" "$((start + first))" "$stage" 2>&1) ||
    fail "the packages in $file cannot be unpacked: $(say "$said" | tail -n 1)" \
      "free some space, or copy the file again; what was unpacked is gone" 3
  "$stage/python/bin/python" -I -m ddlce.cli.unbundle "$file" --channel-at "$((start + first))" \
    --stage "$stage" --root "$root" $options
}

from_here() { # a path, absolute
  case $1 in /*) say "$1" ;; *) say "$here/$1" ;; esac
}

main() {
  here=$PWD file=$(from_here "$0") checked=0
  root=${DDLCE_ROOT:-${HOME:+$HOME/$default_root}} options='' verb=install what='' into=''
  cd /proc || { fail "/proc cannot be used" "mount it: mount -t proc proc /proc" 3; exit 3; }
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h) usage; exit 0 ;;
      --list | --verify) verb=${1#--} ;;
      --older | --no-default | --no-smoke) options="$options $1" ;;
      --root=*) root=${1#*=} ;;
      --root) [ $# -gt 1 ] || fail "--root needs a folder" "see: sh $file --help" 2
        root=$2; shift ;;
      --extract) [ $# -gt 2 ] || fail "--extract needs a name and a folder" "see: sh $file --help" 2
        verb=extract what=$2 into=$3; shift 2 ;;
      *) fail "$1 is no option of this file" "see: sh $file --help" 2 ;;
    esac
    shift
  done
  [ -n "$root" ] || [ "$verb" != install ] ||
    fail "no root is named: --root is empty, or DDLCE_ROOT and HOME are" "name a folder: --root DIR" 2
  check || exit 4
  [ "$checked" -eq 64 ] && [ "$found" = "$wanted" ] || { damaged; exit 4; }
  cd "$here" || exit 3
  umask 022 # what is written is for others to read, whatever the user's is
  case $verb in
    list) say "$title for $platform: $count packages, sha256 $found"; say "$packages" ;;
    verify) say "$file is whole: $title for $platform, sha256 $found" ;;
    extract) extract "$what" "$(from_here "${into%/}")" ;;
    install) install ;;
  esac
}

main "$@"
exit
