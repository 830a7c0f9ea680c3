# ruff: noqa: D102 (ModuleWriter says once what each statement means)
"""Modulefiles in Tcl, for Environment Modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from ddlce.modulefile.writer import HOME, ModuleWriter

# Environment Modules' own pushenv cuts values at a colon, and its path commands remove a
# variable that was set but empty; an unload would then not restore the environment. While
# unloading, `setenv NAME x` removes a variable and `unsetenv NAME x` sets it to x.
PRELUDE = r"""#%Module5.1
# Made by `ddlce module`; make it again instead of editing it.
# Nothing is run at load: these are changes of the environment only.

if {[info exists ::ModuleTool] && $::ModuleTool eq {Lmod}} {
   error {this modulefile is for Environment Modules; with Lmod use the one in modulefiles/lua}
}

proc loading {} {
   return [module-info mode load]
}

proc unloading {} {
   return [module-info mode unload]
}

# A variable that a module has just removed still exists here, but getenv knows better.
proc is_set {name} {
   return [expr {[getenv $name \001] ne "\001"}]
}

proc set_to {name value} {
   set command [expr {[loading] ? "setenv" : "unsetenv"}]
   # setenv forgets what other modules did to the variable: their stack and their counts
   set others {}
   foreach kind {PUSHENV SHARE} {
      set internal __MODULES_${kind}_$name
      if {[is_set $internal]} {
         lappend others $internal [getenv $internal]
      }
   }
   $command $name $value
   foreach {internal kept} $others {
      $command $internal $kept
   }
}

proc push {name value {theirs 0}} {
   set saved __DDLCE_SAVED_$name
   if {[loading]} {
      if {[is_set $name]} {
         setenv $saved [getenv $name]
      }
      set_to $name $value
   } elseif {[unloading]} {
      # if the user has changed the variable since, it is theirs
      if {[getenv $name] eq $value && !$theirs} {
         if {[is_set $saved]} {
            set_to $name [getenv $saved]
         } else {
            setenv $name {}
         }
      }
      if {[is_set $saved]} {
         setenv $saved {}
      }
   } else {
      pushenv $name $value
   }
}

proc push_unless_set {name value} {
   set mark __DDLCE_DEFAULT_$name
   if {[loading]} {
      if {![is_set $name]} {
         setenv $mark 1
         setenv $name $value
      }
   } elseif {[unloading]} {
      if {[is_set $mark]} {
         if {[getenv $name] eq $value} {
            setenv $name {}
         }
         setenv $mark {}
      }
   } else {
      setenv $name $value
   }
}

proc edit_path {edit name value delim tail} {
   if {![loading] && ![unloading]} {
      $edit -d $delim $name {*}[split $value $delim]
      return
   }
   set before [getenv [expr {[loading] ? $name : "__DDLCE_SAVED_$name"}]]
   if {$before eq {}} {
      set whole $value$tail
   } elseif {$edit eq {append-path}} {
      set whole $before$delim$value
   } else {
      set whole $value$delim$before
   }
   if {[unloading] && [getenv $name] ne $whole} {
      $edit -d $delim $name {*}[split $value $delim]
   }
   push $name $whole
}

# conda's variables for each level of its stack move one level down, for the first one goes.
proc lower_levels {depth} {
   set moved [list CONDA_SHLVL [expr {$depth - 1}]]
   foreach {head first} {CONDA_PREFIX_ 1 CONDA_STACKED_ 2 __CONDA_SHLVL_ 0} {
      foreach name [array names ::env ${head}*] {
         if {[regexp "^${head}(\\d+)(.*)\$" $name all level tail]} {
            set value [getenv $name]
            setenv $name {}
            if {$level - 1 >= $first} {
               lappend moved $head[expr {$level - 1}]$tail $value
            }
         }
      }
   }
   foreach {name value} $moved {
      set_to $name $value
   }
}

# The environment is the first level of conda's stack: others are activated on top of it, and
# `conda deactivate` comes back to it. While it is below others, an unload takes it from there.
proc conda_level {prefix name} {
   set depth [getenv CONDA_SHLVL 0]
   if {![string is integer -strict $depth]} {
      set depth 0
   }
   set ours [expr {$depth == 1 && [getenv CONDA_PREFIX] eq $prefix}]
   set below [expr {$depth > 1 && [getenv CONDA_PREFIX_1] eq $prefix}]
   if {[unloading] && $ours} {
      set ::env(CONDA_DEFAULT_ENV) $name ;# coming back, conda calls it by its path
   }
   push CONDA_SHLVL 1 [expr {!$ours}]
   push CONDA_PREFIX $prefix [expr {!$ours}]
   push CONDA_DEFAULT_ENV $name [expr {!$ours}]
   if {[unloading] && $below} {
      lower_levels $depth
   }
}
"""

REFUSE = """if {{[loading]}} {{
   set active [getenv CONDA_PREFIX]
   set depth [getenv CONDA_SHLVL 0]
   if {{![string is integer -strict $depth]}} {{
      set depth 0
   }}
   if {{$depth > 1 || (($depth == 1 || $active ne {{}}) && $active ne {prefix})}} {{
      puts stderr "{message} (CONDA_PREFIX=$active)"
      break
   }}
}}
"""


class TclWriter(ModuleWriter):
    """Environment Modules 5.1 or newer."""

    system = "Environment Modules"
    folder = "tcl"
    suffix = ""
    default_file = ".modulerc"
    path_editors = ("prepend-path", "append-path")

    def header(self) -> str:
        return PRELUDE

    def quote(self, value: str) -> str:
        return f'"{_escape(value)}"'

    def call(self, function: str, arguments: Iterable[str]) -> str:
        return " ".join([function, *arguments])

    def comment(self, text: str) -> None:
        self.add(f"\n# {text}")

    def help(self, text: str) -> None:
        self.add(f"proc ModulesHelp {{}} {{\n   puts stderr {self.quote(text)}\n}}")

    def whatis(self, text: str) -> None:
        self.add(f"module-whatis {self.quote(text)}")

    def extensions(self, packages: Sequence[tuple[str, str]]) -> None:
        inside = " ".join(self.quote(f"{name}/{version}") for name, version in packages)
        guard = "if {[versioncmp $::ModuleToolVersion 5.6] >= 0} {"
        self.add(f"{guard}\n   provide {inside}\n}}")

    def require(self, path: PurePath, message: str) -> None:
        condition = f"[loading] && ![file exists {self.quote(str(path))}]"
        refusal = f"puts stderr {self.quote(message)}\n   break"
        self.add(f"if {{{condition}}} {{\n   {refusal}\n}}")

    def refuse_other_conda(self, prefix: PurePath, message: str) -> None:
        self.add(REFUSE.format(prefix=self.quote(str(prefix)), message=_escape(message)))

    def refuse_while_set(self, name: str, message: str) -> None:
        condition = f"[loading] && [getenv {self.quote(name)}] ne {{}}"
        self.add(f"if {{{condition}}} {{\n   puts stderr {self.quote(message)}\n   break\n}}")

    @classmethod
    def default_version(cls, name: str, version: str) -> str:
        return f'#%Module5.1\nmodule-version "{_escape(f"{name}/{version}")}" default\n'


def _escape(value: str) -> str:
    return "".join(map(_escape_char, value))


def _escape_char(char: str) -> str:
    if char == HOME:
        return "[getenv HOME]"
    if char in '"\\$[]{};':
        return "\\" + char
    if (ord(char) < 32 and char != "\n") or ord(char) == 127:
        return f"\\{ord(char):03o}"
    return char
