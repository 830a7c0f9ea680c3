# Runs in the test environment: a self-signed certificate, the legacy provider (a module that
# must be found at the new prefix), and the compiled-in paths.
set -euo pipefail

openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 1 \
  -keyout key.pem -out certificate.pem
openssl verify -CAfile certificate.pem certificate.pem
openssl list -providers -provider legacy | grep -q 'OpenSSL Legacy Provider'

openssl version -d | grep -qF "$PREFIX/ssl"
openssl version -m | grep -qF "$PREFIX/lib/ossl-modules"
# What the library says of its making must not depend on where it was made.
if openssl version -f | grep -E 'prefix-map|/tmp|_h_env|rattler'; then
  exit 1
fi
