"""What commands do before they install or fetch: ask whether it is signed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddlce.cli.common import err
from ddlce.settings import Settings

if TYPE_CHECKING:
    from ddlce.model.envlock import LockedPackage
    from ddlce.trust.policy import Signatures


def require_signed(settings: Settings, files: Mapping[str, str]) -> None:
    """Check files where the settings file says whose signatures are wanted.

    Args:
        files: name in the metadata → sha256 in hex.

    Raises:
        DdlceError: the settings file is wrong, or a file is not signed as it must be.
    """
    if wanted := _wanted(", ".join(files)):
        from ddlce.trust.client import check_signed

        check_signed(wanted, settings.cache, files)


def require_signed_packages(
    settings: Settings, packages: Sequence[LockedPackage], channels: Mapping[str, str]
) -> None:
    """Check packages that no lock names, where the settings file says whose signatures are wanted.

    Args:
        channels: name → address.

    Raises:
        DdlceError: the settings file is wrong, or a package is not in the signed index.
    """
    if not packages:
        return
    if wanted := _wanted(", ".join(package.name for package in packages)):
        from ddlce.trust.packages import check_packages

        check_packages(wanted, settings.cache, packages, channels)


def _wanted(names: str) -> Signatures | None:
    """Whose signatures are wanted of these; a warning where a site wants none."""
    from ddlce.trust.policy import load_policy, policy_file

    policy = load_policy()
    if policy is None:
        return None
    if policy.signatures != "unchecked":
        return policy.signatures
    err.print(
        f"WARNING: nobody checks who made {names}: signatures are unchecked in {policy_file()}",
        style="bold red",
        markup=False,
    )
    return None
