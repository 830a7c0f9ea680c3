"""Python has the hook from its start, in this environment without its variables, too."""

import subprocess
import sys

HOOKED = "import sys; print(type(sys.meta_path[0]).__module__, 'typing' in sys.modules)"

for options in ([], ["-I"], ["-E", "-s"]):
    done = subprocess.run(
        [sys.executable, *options, "-c", HOOKED],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    # It costs the start of programs next to nothing.
    assert done.stdout == "private_caches False\n", done.stdout
    assert done.stderr == "", done.stderr
