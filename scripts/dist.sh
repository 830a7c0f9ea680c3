#!/usr/bin/env bash
# `make dist`: what is handed over of a release, in dist/site. The wheel and the zipapp of ddlce, and
# channel, locks, bundles, SBOMs and signatures of the environments in ENVS. KEY is the file of a
# release key, for the root in channel/metadata. Without it, a key for trying is made once in
# build/dist; then the same tree gives the same bytes, as its signatures count their days from the
# last commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${DIST:-dist} ddlce=.venv/bin/ddlce
read -ra envs <<<"${ENVS:-ddl-ce}"
read -ra options <<<"${OPTIONS:-}"
export DDLCE_REPO=${DDLCE_REPO:-$PWD}

.venv/bin/python -I -m ddlce.dist "$out/site"
if [[ -n ${KEY:-} ]]; then
  options+=(--sign "$KEY")
else
  made=build/dist
  : "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
  export SOURCE_DATE_EPOCH
  mkdir -p "$made"
  [[ -e $made/test-key.pub ]] || "$ddlce" keys new "$made/test-key"
  [[ -e $made/metadata/1.root.json ]] || "$ddlce" keys root --root-key "$made/test-key.pub" \
    --release-key "$made/test-key.pub" --sign "$made/test-key" --metadata "$made/metadata"
  options+=(--sign "$made/test-key" --metadata "$made/metadata")
  echo "signed with a key for trying only: say KEY=FILE for a real one"
fi
"$ddlce" publish "$out/site" "${envs[@]}" "${options[@]}"
