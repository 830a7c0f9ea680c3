# Part of both compilers' activations: the flags, and the packages that pkg-config finds.
_ddlce_set CPPFLAGS "-isystem $_ddlce_prefix/include"
_ddlce_set CFLAGS "-O2 -fPIC -fstack-protector-strong$_ddlce_map -isystem $_ddlce_prefix/include"
_ddlce_set LDFLAGS "-Wl,-O2 -Wl,--sort-common -Wl,--as-needed -Wl,-z,relro -Wl,--build-id=none -Wl,-rpath,$_ddlce_prefix/lib -Wl,-rpath-link,$_ddlce_prefix/lib -L$_ddlce_prefix/lib"
# The prefix's .pc files only: the machine's libraries must not be found.
_ddlce_set PKG_CONFIG_LIBDIR "$_ddlce_prefix/lib/pkgconfig:$_ddlce_prefix/share/pkgconfig"
