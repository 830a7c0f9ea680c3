#!/usr/bin/env bash
set -euo pipefail

for patch in "$RECIPE_DIR"/patches/*.patch; do
  patch -p1 --fuzz=0 --no-backup-if-mismatch < "$patch"
done

# Not `persist`, a service that runs what anybody asks for, nor `manual`, whose proxies somebody
# else starts: that one would have to be told the key, too.
cd src/pm/hydra
./configure --prefix="$PREFIX" --build="$BUILD" --host="$HOST" --disable-dependency-tracking \
  --with-hydra-bss=user,ssh,rsh,fork,slurm,ll,lsf,sge,cobalt

# What `mpiexec -info` tells of its own making is not to name this build's folders.
sed -i -E -e "s#-ffile-prefix-map=[^ '\"\\]*##g" -e "s#$SRC_DIR#.#g" -e "s#$BUILD_PREFIX#/usr#g" \
  include/hydra_config.h
make -j"$CPU_COUNT"
make install
# One takes names from anybody, the other is that service, built all the same.
rm "$PREFIX"/bin/hydra_{nameserver,persist}
rm -rf "$PREFIX"/share/{man,doc}
"$STRIP" "$PREFIX"/bin/{mpiexec.hydra,hydra_pmi_proxy}
