# Sourced on deactivation. The compilers' own scripts put CC and CXX back.

for _ddlce_name in DDLCE_GCC DDLCE_GXX; do
  eval "if [ -n \"\${_DDLCE_OLD_$_ddlce_name+set}\" ]; then
    $_ddlce_name=\"\$_DDLCE_OLD_$_ddlce_name\"; export $_ddlce_name
  else unset $_ddlce_name; fi"
  unset "_DDLCE_OLD_$_ddlce_name"
done
unset _ddlce_name
