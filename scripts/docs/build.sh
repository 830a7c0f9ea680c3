#!/usr/bin/env bash
# The documents as a site in build/site: its generator from requirements-docs.lock, in a venv of its
# own, the program that draws the figures from npm, and the catalogue of the locks. The site asks no server for anything.
set -euo pipefail
cd "$(dirname "$0")/../.."

mermaid=11.17.2
sha256=6ad2f42c3fc26bbf9e45cbb6d11898972573ea52b33a5f4ff51952899f950ffd
assets=build/docs-assets
mkdir -p "$assets"
if [ ! -e "$assets/mermaid.min.js" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  (cd "$folder" && npm pack --silent "mermaid@$mermaid" > /dev/null)
  echo "$sha256  $folder/mermaid-$mermaid.tgz" | sha256sum --check --quiet
  tar -xzf "$folder/mermaid-$mermaid.tgz" -C "$folder" package/dist/mermaid.min.js
  mv "$folder/package/dist/mermaid.min.js" "$assets/"
fi

venv=build/docs-venv
if ! cmp -s requirements-docs.lock "$venv/requirements.lock"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -I -m pip install --quiet --disable-pip-version-check --no-deps \
    --require-hashes --only-binary=:all: --requirement requirements-docs.lock
  cp requirements-docs.lock "$venv/requirements.lock"
fi
.venv/bin/ddlce catalogue --json > "$assets/catalogue.json"
NO_MKDOCS_2_WARNING=1 "$venv/bin/python" -I -m mkdocs build --strict --quiet
echo "site: $PWD/build/site/index.html"
