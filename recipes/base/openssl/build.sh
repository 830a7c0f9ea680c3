set -euo pipefail

case "$HOST" in
  x86_64-*) target=linux-x86_64 ;;
  powerpc64le-*) target=linux-ppc64le ;;
  *) echo "openssl: no Configure target known for $HOST" >&2; exit 1 ;;
esac

# libcrypto tells its users the compiler's command line (OpenSSL_version(OPENSSL_CFLAGS)):
# give it the part that is the same on every machine.
sed -i 's/"\$(CC) \$(LIB_CFLAGS) \$(CPPFLAGS_Q)"/"gcc -O2 -fPIC"/' Configurations/*.tmpl crypto/build.info
grep -q '"gcc -O2 -fPIC"' crypto/build.info

perl ./Configure "$target" --prefix="$PREFIX" --openssldir="$PREFIX/ssl" --libdir=lib \
  shared threads no-tests no-zlib no-ssl3 enable-legacy

# LIBS and INSTALL_LIBS are the static libraries for users; without them half of the objects,
# those that are not position independent, are never compiled. One make target at a time: two
# of them in one make race on generated files.
make -j"$CPU_COUNT" build_sw LIBS= INSTALL_LIBS=
make install_sw LIBS= INSTALL_LIBS=
make install_ssldirs LIBS= INSTALL_LIBS=
rm -r "$PREFIX/ssl/misc" "$PREFIX/bin/c_rehash"  # Perl scripts for running a CA
rm "$PREFIX"/ssl/*.dist
