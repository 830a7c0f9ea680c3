#!/bin/sh
# Runs a command on a host of the lab, where a launcher would call rsh:  enter HOST COMMAND..
# A process that `network.py` keeps on the host holds its network, name, memory and files.
set -eu
host=$1
shift
keeper=$(cat "$(dirname "$0")/$host.pid")
exec nsenter --target "$keeper" --net --uts --ipc --mount -- sh -c "$*"
