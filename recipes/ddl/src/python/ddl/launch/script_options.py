"""The options of batch scripts, as the command line has them."""

USAGE = """\
Batch scripts (nothing is started here; the other options go into the script):
  -script SYSTEM      write a script for slurm, lsf or pbs, or a manifest: mpijob, trainjob
  -N N                hosts of the job
  -gpus N             GPUs of each host, and as many ranks unless -accelerators or -np says more
  -cores N            cores of each rank
  -time TIME          wall time: minutes, HH:MM:SS or D-HH:MM:SS
  -signal SECONDS     SIGUSR1 to the ranks that long before the end (Slurm, LSF)
  -name NAME          of the job; default: the program's name
  -queue NAME         the queue; Slurm's partition
  -account NAME       the account or project
  -module NAME        the module to load; default: the loaded one; none: PATH alone
  -overlay NAME       the overlay or venv to activate; default: the active one; none: none
  -image NAME         the container image, for Kubernetes
  -output FILE        write there and not to standard output; never over a file
  -submit             submit it, and print the job's number
"""

#: Options that take a value, with the placeholder for it in messages. script/request.py reads
#: each, and script/text.py puts it into the templates; systems.py refuses it where it has no place.
SCRIPT_VALUES = {
    "script": "SYSTEM",
    "N": "N",
    "gpus": "N",
    "cores": "N",
    "time": "TIME",
    "signal": "SECONDS",
    "name": "NAME",
    "queue": "NAME",
    "account": "NAME",
    "module": "NAME",
    "overlay": "NAME",
    "image": "NAME",
    "output": "FILE",
}
SCRIPT_FLAGS = {
    "submit": "",
}
