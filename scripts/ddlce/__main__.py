"""`python -m ddlce`: the same program as the `ddlce` command."""

from ddlce.cli.app import main

main()
