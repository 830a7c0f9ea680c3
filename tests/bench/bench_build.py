"""How long `make`'s work takes: cold, again with nothing changed, and after touching one leaf.

`--cold` starts from an empty cache and root in a scratch folder, downloads included, and takes
as long as a first `make`. Without it, only the two warm cases are timed, on the user's cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
OUT = Path(__file__).parent / "out"


def run(command: list[str], env: dict[str, str], cwd: Path) -> tuple[float, str]:
    """Wall seconds and standard output of a command that must succeed."""
    started = time.monotonic()
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return time.monotonic() - started, done.stdout


def main() -> None:
    """Print the table and write out/build.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cold", action="store_true", help="also from an empty cache")
    parser.add_argument("--leaf", default="ddl-ce", help="the recipe to touch")
    parser.add_argument("--repeat", type=int, default=3, help="times for each warm case")
    options = parser.parse_args()

    scratch = Path(tempfile.mkdtemp(prefix="ddlce-bench-"))
    env = dict(os.environ)
    rows: dict[str, list[float]] = {}
    try:
        if options.cold:
            env |= {"DDLCE_CACHE": str(scratch / "cache"), "DDLCE_ROOT": str(scratch / "root")}
        # A copy of the tracked tree: the leaf that is touched is not the developer's own.
        tree = scratch / "tree"
        subprocess.run(["git", "clone", "-q", str(REPO), str(tree)], check=True)
        env |= {"DDLCE_REPO": str(tree)}
        everything = [sys.executable, "-m", "ddlce", "all"]
        first, _ = run(everything, env, tree)
        if options.cold:
            rows["cold, everything built"] = [first]
        rows["again, nothing changed"] = [
            run(everything, env, tree)[0] for _ in range(options.repeat)
        ]
        rebuilt = []
        for turn in range(options.repeat):
            recipe = tree / "recipes" / options.leaf / "recipe.yaml"
            recipe.write_text(recipe.read_text() + f"# touched {turn}\n")
            seconds, text = run([sys.executable, "-m", "ddlce", "build", "--json"], env, tree)
            built = json.loads(text[text.index("{") :])["built"]
            if [*built] != [options.leaf]:
                sys.exit(f"touching {options.leaf} rebuilt {sorted(built)}")
            rebuilt.append(seconds)
        rows[f"{options.leaf} touched: only it is built"] = rebuilt
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(scratch)], check=False)
        shutil.rmtree(scratch, ignore_errors=True)

    print(f"{'case':45} {'median s':>9} {'runs':>5}")
    for name, times in rows.items():
        print(f"{name:45} {statistics.median(times):9.1f} {len(times):5}")
    OUT.mkdir(exist_ok=True)
    (OUT / "build.json").write_text(
        json.dumps(
            {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
                "seconds": {name: [round(s, 2) for s in runs] for name, runs in rows.items()},
            },
            indent=2,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
