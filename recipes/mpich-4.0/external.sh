#!/usr/bin/env bash
# The `external` variant: no library, only a note that says what takes its place.
set -euo pipefail
install -Dm644 "$RECIPE_DIR/external.txt" "$PREFIX/share/doc/mpich/external.txt"
