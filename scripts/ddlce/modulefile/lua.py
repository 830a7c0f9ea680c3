# ruff: noqa: D102 (ModuleWriter says once what each statement means)
"""Modulefiles in Lua, for Lmod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from ddlce.modulefile.writer import HOME, ModuleWriter

# Lmod's own prepend_path removes the duplicates that a user has in a path, and its pushenv
# forgets an empty value and leaves its stack behind; an unload would then not restore the
# environment. These procedures use Lmod's functions so that it does.
PRELUDE = r"""-- Made by `ddlce module`; make it again instead of editing it.
-- Nothing is run at load: these are changes of the environment only.

local loading = mode() == "load"
local unloading = mode() == "unload"
local home = os.getenv("HOME") or ""

-- While unloading, Lmod turns setenv into its opposite.
local function forget(name)
   setenv(name, "")
end

-- A variable that was set, but empty, becomes empty again. Lmod cannot say so by itself.
local function restore_empty(name)
   posix.setenv(name, "", true)
   local set = ': "${' .. name .. '=}"; export ' .. name
   if myShellType() == "csh" then
      set = "if (! $?" .. name .. ") setenv " .. name .. " ''"
   elseif myShellType() == "fish" then
      set = "set -q " .. name .. "; or set -gx " .. name .. " ''"
   end
   execute{cmd = set, modeA = {"unload"}}
end

-- Nor can it give a variable another value while it unloads.
local function set_now(name, value)
   posix.setenv(name, value, true)
   local quoted = "'" .. value:gsub("'", "'\\''") .. "'"
   local commands = {
      csh = "setenv " .. name .. " " .. quoted,
      fish = "set -gx " .. name .. " " .. quoted,
   }
   execute{cmd = commands[myShellType()] or name .. "=" .. quoted .. "; export " .. name,
      modeA = {"unload"}}
end

local function push(name, value, theirs)
   local stack, empty = "__LMOD_STACK_" .. name, "__DDLCE_EMPTY_" .. name
   if loading then
      local before = os.getenv(name)
      if before == "" then
         setenv(empty, "1")
         before = nil
      end
      if not os.getenv(stack) then
         unsetenv(stack)
         pushenv(name, before or false)
      end
      pushenv(name, value)
   elseif unloading then
      if os.getenv(name) == value and not theirs then
         pushenv(name, value)
         if not (os.getenv(stack) or ""):find(":", 1, true) then
            forget(stack) -- only what the user had is left in it
         end
         if os.getenv(empty) then
            restore_empty(name)
         end
      else
         forget(stack) -- the user has changed the variable since: it is theirs
      end
      forget(empty)
   else
      pushenv(name, value)
   end
end

local function push_unless_set(name, value)
   local mark = "__DDLCE_DEFAULT_" .. name
   if loading and os.getenv(name) == nil then
      setenv(mark, "1")
      setenv(name, value)
   elseif unloading and os.getenv(mark) then
      if os.getenv(name) == value then
         forget(name)
      end
      forget(mark)
   elseif not (loading or unloading) then
      setenv(name, value)
   end
end

local function edit_path(edit, name, value, delim, tail)
   if not (loading or unloading) then
      return edit{name, value, delim = delim}
   end
   local saved = "__DDLCE_SAVED_" .. name
   local before = os.getenv(loading and name or saved)
   if before == "" then
      before = nil
   end
   local whole = value .. tail
   if before then
      whole = edit == append_path and before .. delim .. value or value .. delim .. before
   end
   if loading and before then
      setenv(saved, before)
   elseif unloading then
      if os.getenv(name) ~= whole then
         remove_path{name, value, delim = delim}
      end
      forget(saved)
   end
   push(name, whole)
end

-- conda's variables for each level of its stack move one level down, for the first one goes.
local function lower_levels(depth)
   local lowest = {CONDA_PREFIX_ = 1, CONDA_STACKED_ = 2, __CONDA_SHLVL_ = 0}
   local moved = {CONDA_SHLVL = string.format("%d", depth - 1)}
   local environ = io.open("/proc/self/environ") -- Lmod has no list of all variables
   for name, value in (environ and environ:read("*a") or ""):gmatch("([^=%z]+)=(%Z*)") do
      for head, first in pairs(lowest) do
         local level, tail = name:match("^" .. head .. "(%d+)(.*)$")
         if level then
            forget(name)
            if level - 1 >= first then
               moved[head .. string.format("%d", level - 1) .. tail] = value
            end
         end
      end
   end
   for name, value in pairs(moved) do
      set_now(name, value)
   end
end

-- The environment is the first level of conda's stack: others are activated on top of it, and
-- `conda deactivate` comes back to it. While it is below others, an unload takes it from there.
local function conda_level(prefix, name)
   local depth = tonumber(os.getenv("CONDA_SHLVL") or "") or 0
   local ours = depth == 1 and os.getenv("CONDA_PREFIX") == prefix
   local below = depth > 1 and os.getenv("CONDA_PREFIX_1") == prefix
   if unloading and ours then
      posix.setenv("CONDA_DEFAULT_ENV", name, true) -- coming back, conda calls it by its path
   end
   push("CONDA_SHLVL", "1", not ours)
   push("CONDA_PREFIX", prefix, not ours)
   push("CONDA_DEFAULT_ENV", name, not ours)
   if unloading and below then
      lower_levels(depth)
   end
end
"""

REFUSE = """if loading then
   local active = os.getenv("CONDA_PREFIX") or ""
   local depth = tonumber(os.getenv("CONDA_SHLVL") or "") or 0
   if depth > 1 or (depth == 1 or active ~= "") and active ~= {prefix} then
      LmodError({message} .. " (CONDA_PREFIX=" .. active .. ")")
   end
end
"""


class LuaWriter(ModuleWriter):
    """Lmod 8.2.8 or newer; older ones load it too, without `module spider` for packages."""

    system = "Lmod"
    folder = "lua"
    suffix = ".lua"
    default_file = ".modulerc.lua"
    path_editors = ("prepend_path", "append_path")

    def header(self) -> str:
        return PRELUDE

    def quote(self, value: str) -> str:
        parts = ['"' + "".join(map(_escape, part)) + '"' for part in value.split(HOME)]
        return " .. home .. ".join(parts).removeprefix('"" .. ').removesuffix(' .. ""')

    def call(self, function: str, arguments: Iterable[str]) -> str:
        return f"{function}({', '.join(arguments)})"

    def comment(self, text: str) -> None:
        self.add(f"\n-- {text}")

    def help(self, text: str) -> None:
        self.add(f"help({self.quote(text)})")

    def whatis(self, text: str) -> None:
        self.add(f"whatis({self.quote(text)})")

    def extensions(self, packages: Sequence[tuple[str, str]]) -> None:
        inside = ", ".join(f"{name}/{version}" for name, version in packages)
        self.add(f"if extensions then\n   extensions({self.quote(inside)})\nend")

    def require(self, path: PurePath, message: str) -> None:
        condition = f"loading and not isFile({self.quote(str(path))})"
        self.add(f"if {condition} then\n   LmodError({self.quote(message)})\nend")

    def refuse_other_conda(self, prefix: PurePath, message: str) -> None:
        quoted = {"prefix": self.quote(str(prefix)), "message": self.quote(message)}
        self.add(REFUSE.format(**quoted))

    def refuse_while_set(self, name: str, message: str) -> None:
        condition = f'loading and (os.getenv({self.quote(name)}) or "") ~= ""'
        self.add(f"if {condition} then\n   LmodError({self.quote(message)})\nend")

    @classmethod
    def default_version(cls, name: str, version: str) -> str:
        target = "".join(map(_escape, f"{name}/{version}"))
        return f'module_version("{target}", "default")\n'


def _escape(char: str) -> str:
    if char in '"\\\n':
        return "\\" + char
    if ord(char) < 32 or ord(char) == 127:
        return f"\\{ord(char):03d}"
    return char
