# Sourced on deactivation: puts back what was there before the activation.

_ddlce_restore() {
  eval "if [ -n \"\${_DDLCE_OLD_$1+set}\" ]; then $1=\"\$_DDLCE_OLD_$1\"; export $1; else unset $1; fi"
  unset "_DDLCE_OLD_$1"
}

for _ddlce_name in @NAMES@; do
  _ddlce_restore "$_ddlce_name"
done
unset _ddlce_name
unset -f _ddlce_restore
