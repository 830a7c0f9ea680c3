"""What commands do before they install or fetch: ask whether it is signed."""

from __future__ import annotations

from collections.abc import Mapping

from ddlce.cli.common import err
from ddlce.settings import Settings


def require_signed(settings: Settings, files: Mapping[str, str]) -> None:
    """Check files where the settings file says whose signatures are wanted.

    Args:
        settings: with the cache.
        files: name in the metadata → sha256 in hex.

    Raises:
        DdlceError: the settings file is wrong, or a file is not signed as it must be.
    """
    from ddlce.trust.policy import load_policy, policy_file

    policy = load_policy()
    if policy is None:
        return
    if policy.signatures == "unchecked":
        names = ", ".join(files)
        err.print(
            f"WARNING: nobody checks who made {names}: signatures are unchecked in {policy_file()}",
            style="bold red",
            markup=False,
        )
        return
    from ddlce.trust.client import check_signed

    check_signed(policy.signatures, settings.cache, files)
