#!/bin/sh
# Stands in for ssh on the lab's hosts:  ssh [OPTIONS] HOST COMMAND..
set -eu
while :; do
  case $1 in
    --) shift; break ;;
    -o) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
exec "$(dirname "$0")/../enter" "$@"
