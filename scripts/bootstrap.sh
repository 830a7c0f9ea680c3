#!/usr/bin/env bash
# Makes the machine and .venv ready for `ddlce`: the first step of every `make` verb, so it does
# nothing, and fast, when nothing is to be done. The system packages stand in one list that
# `ddlce doctor` reads too. DDLCE_NO_INSTALL=1 only says what is missing. The argument `ppc64le`
# or `aarch64` asks for what builds for that platform as well.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What a user has set for other Pythons and other installations is not meant for .venv.
unset PYTHONHOME PYTHONPATH PYTHONSTARTUP PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT \
  PIP_NO_BINARY PIP_ONLY_BINARY PIP_DRY_RUN

list=scripts/ddlce/doctor/system-packages.txt
lock=requirements.lock
platform=${1:-}
stamp=.venv/ddlce-stamp

fail() { # message, hint
  printf 'error: %s\nhint:  %s\n' "$1" "$2" >&2
  exit 3
}

installer() { # apt, dnf, zypper, or nothing
  local ID="" ID_LIKE=""
  # shellcheck source=/dev/null
  [[ -r /etc/os-release ]] && . /etc/os-release
  case " $ID $ID_LIKE " in
    *" debian "* | *" ubuntu "*) echo apt ;;
    *" fedora "* | *" rhel "*) echo dnf ;;
    *suse*) echo zypper ;;
  esac
}

lock() { # so that of two `make` on one tree, the second finds the work of the first done
  # A file that is there anyway. Where the file system has no locks, there is none.
  { exec 9<>scripts/bootstrap.sh && flock 9; } 2>/dev/null || true
}

check_loader() { # whether python $1 can be used with the LD_LIBRARY_PATH that modules set
  local modules=(-I -c 'import ctypes, ssl, zlib') said
  if [[ -n ${LD_LIBRARY_PATH:-} ]] && ! said=$("$1" "${modules[@]}" 2>&1) &&
    (unset LD_LIBRARY_PATH && "$1" "${modules[@]}" 2>/dev/null); then
    fail "LD_LIBRARY_PATH=$LD_LIBRARY_PATH: with it, $1 does not work: ${said##*$'\n'}" \
      "unset LD_LIBRARY_PATH, or unload the module that sets it"
  fi
}

pip_install() { # into .venv, whatever pip.conf says of other places
  .venv/bin/python -I -m pip install -qq --disable-pip-version-check --no-user --no-deps "$@"
}

isolate() { # a script of pip's: with -I, its Python takes nothing from PYTHONPATH
  sed -i -e '1s|^#!.*/python[^ /]*$|& -I|' -e "2s| \"\$0\"| -I&|" "$1"
}

find_python() { # the first python3 that is new enough
  local name ask=(-I -c 'import sys; sys.exit(sys.version_info < (3, 11))')
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    # If it starts without LD_LIBRARY_PATH only, `check_loader` says so.
    if "$name" "${ask[@]}" 2>/dev/null || env -u LD_LIBRARY_PATH "$name" "${ask[@]}" 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  return 1
}

is_there() { # a `check` of the list
  case $1 in
    path:*)
      local pattern
      IFS='|' read -ra patterns <<<"${1#path:}"
      for pattern in "${patterns[@]}"; do
        compgen -G "$pattern" >/dev/null && return 0
      done
      return 1
      ;;
    # A .venv that is there was made with them; starting a Python costs more than all the rest.
    python3) [[ -x .venv/bin/python ]] || find_python >/dev/null ;;
    python:*) [[ -x .venv/bin/python ]] || "$(find_python)" -I -c "import ${1#python:}" 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

missing() { # the packages, for installer $1, of what is needed ($2) and not there
  local need check _least apt dnf zypper _why
  while read -r need check _least apt dnf zypper _why; do
    [[ $need == "$2" && ${!1} != - ]] || continue
    is_there "$check" || echo "${!1}"
  done <"$list" | sort -u
}

install() { # installer, packages; as root or with passwordless sudo; false when not allowed
  local manager=$1 sudo=()
  shift
  [[ -z ${DDLCE_NO_INSTALL:-} ]] || return 1
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null || return 1
    sudo=(sudo -n)
  fi
  case $manager in
    apt)
      "${sudo[@]}" apt-get update -q
      "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "$@"
      ;;
    dnf) "${sudo[@]}" dnf install -y "$@" ;;
    zypper) "${sudo[@]}" zypper --non-interactive install "$@" ;;
  esac
}

by_hand() { # the command that a person runs
  case $1 in
    apt) echo "apt-get install -y ${*:2}" ;;
    dnf) echo "dnf install -y ${*:2}" ;;
    zypper) echo "zypper install ${*:2}" ;;
    *) echo "install, with your system's installer, what Debian calls: ${*:2}" ;;
  esac
}

needed() { # the packages that are not there and that the verb cannot do without
  missing "$names" required
  [[ -z $platform ]] || missing "$names" "$platform"
}

system_packages() {
  local manager names required tests
  manager=$(installer)
  names=${manager:-apt}
  mapfile -t required < <(needed)
  mapfile -t tests < <(missing "$names" test)
  if ((${#required[@]} + ${#tests[@]} == 0)); then
    return
  fi
  echo "system packages that are not there: ${required[*]} ${tests[*]}"
  if ((${#required[@]})) && ! install "$manager" "${required[@]}" 9<&-; then
    fail "system packages are missing: ${required[*]}" \
      "as root: $(by_hand "$manager" "${required[@]}" "${tests[@]}")"
  fi
  if ((${#tests[@]})) && ! install "$manager" "${tests[@]}" 9<&-; then
    echo "make test and make lint will need: $(by_hand "$manager" "${tests[@]}")" >&2
  fi
  hash -r
  mapfile -t required < <(needed)
  if ((${#required[@]})); then
    fail "still missing after the installation: ${required[*]}" \
      "see the installer's own message above"
  fi
}

wanted_stamp() { # changes when .venv must be made again
  sha256sum "$lock" pyproject.toml
  pwd # an editable install and a venv's scripts hold absolute paths
}

make_venv() {
  [[ -f $lock ]] || fail "$PWD/$lock: missing" "restore it: git checkout $lock"
  if [[ -f $stamp && $(<"$stamp") == "$(wanted_stamp)" ]]; then
    return
  fi
  local python
  python=$(find_python) || fail "no python3 of version 3.11 or newer" "install one: see 'Build it' in README.md"
  check_loader "$python"
  echo "making .venv with $python from $lock"
  # From the beginning: what an older lock left, or a killed run, must not stay.
  rm -rf .venv
  "$python" -I -m venv .venv
  pip_install --require-hashes -r "$lock" ||
    fail "pip could not install the packages of $lock" \
      "its message is above; is the Python package registry reachable from here?"
  pip_install --no-build-isolation --editable . || fail "pip could not install ddlce" "see above"
  isolate .venv/bin/ddlce
  wanted_stamp >"$stamp"
}

lock
system_packages
make_venv
