# Compiles with what sysconfig says, as setuptools does, then embeds.
set -euo pipefail

config() { python -c "import sysconfig; print(sysconfig.get_config_var('$1'))"; }

suffix=$(config EXT_SUFFIX)
# shellcheck disable=SC2046 # flags are lists
$(config CC) $(config CFLAGS) $(config CCSHARED) $(python3-config --includes) \
  -c tests/extension.c -o extension.o
# shellcheck disable=SC2046
$(config LDSHARED) extension.o -o "extension$suffix"
python -c 'import extension; assert extension.answer() == 42'

# shellcheck disable=SC2046,SC2086
$CC $(python3-config --cflags) tests/embed.c $LDFLAGS $(python3-config --ldflags --embed) -o embed
PYTHONPATH=$PWD ./embed
