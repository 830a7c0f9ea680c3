"""The libraries that a command line asks for, and where they are."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.lab.peers import every_peer
from bench.lab.peers.base import Peer
from support.pip import Unavailable


def add_prefixes(ask: argparse.ArgumentParser) -> None:
    """The options that say where libraries are."""
    ask.add_argument("--ddl-prefix", type=Path, help="where libddl is; default: the built env")
    ask.add_argument("--mpi-prefix", type=Path, help="the MPICH under it; default: the same")
    ask.add_argument("--torch-prefix", type=Path, help="for Gloo; default: the built env")


def chosen_peers(asked: argparse.Namespace) -> list[Peer]:
    """Those that `--peers` names; without it, all. ValueError for a name that is none."""
    every = every_peer(asked.ddl_prefix, asked.mpi_prefix, asked.torch_prefix)
    names = asked.peers or list(every)
    if unknown := [name for name in names if name not in every]:
        raise ValueError(f"library {unknown[0]}: not one of {', '.join(every)}")
    return [every[name] for name in names]


def prepare(peers: list[Peer]) -> dict[str, str]:
    """Installs and compiles; returns why the ones that cannot run cannot."""
    missing = {}
    for peer in peers:
        try:
            peer.prepare()
        except Unavailable as error:
            missing[peer.name] = f"unavailable: {error}"
    return missing
