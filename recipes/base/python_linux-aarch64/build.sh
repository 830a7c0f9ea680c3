# The script of the room python, for another processor than this machine's. The python in BUILD_PREFIX
# freezes modules, builds extensions and compiles the byte code.
set -euo pipefail

native=$BUILD_PREFIX/bin/python3.11
sed -e "s|^\./configure |&--with-build-python=$native |" \
  -e "s|^bash .*/finish\.sh.* 3\.11 .*|bash \"\$RECIPE_DIR/finish.sh\" 3.11 '$native' '$HOST'|" \
  shared/build.sh > here.sh
test "$(diff shared/build.sh here.sh | grep -c '^>')" -eq 2

# Python's configure must know that this is another processor. Then it cannot try some things, and
# would guess pessimistically: how they are on every Linux with glibc.
export CONFIG_SITE=/dev/null
export ac_cv_aligned_required=no ac_cv_buggy_getaddrinfo=no ac_cv_broken_sem_getvalue=no
export ac_cv_broken_nice=no ac_cv_broken_poll=no ac_cv_broken_mbstowcs=no
export ac_cv_computed_gotos=yes ac_cv_working_tzset=yes ac_cv_posix_semaphores_enabled=yes
# Threads are in a library of their own before glibc 2.34.
export ac_cv_pthread_is_default=no ac_cv_kpthread=no ac_cv_kthread=no ac_cv_pthread=yes
export ac_cv_pthread_system_supported=yes
export ac_cv_rshift_extends_sign=yes ac_cv_wchar_t_signed=no ac_cv_x87_double_rounding=no
export ac_cv_file__dev_ptmx=yes ac_cv_file__dev_ptc=no
export RECIPE_DIR=$PWD/shared
bash here.sh
