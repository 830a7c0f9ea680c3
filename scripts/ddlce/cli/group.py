"""A group of commands that is a command itself: `ddlce lock ENV`, and `ddlce lock diff`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

#: The command that is meant where the first word names none.
ITSELF = "itself"


class OrItself(TyperGroup):
    """Words that begin with no command of the group are those of its command `ITSELF`."""

    @property
    def itself(self) -> Any:
        """The command that is the group itself."""
        return self.commands[ITSELF]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name before its words, where it is the group itself."""
        named = args[:1] and args[0] in self.commands
        return super().parse_args(ctx, args if named else [ITSELF, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command and its words; nobody sees the name that nobody wrote."""
        name, command, words = super().resolve_command(ctx, args)
        return "" if name == ITSELF else name, command, words
