"""The functions of the MPI below that MPItrampoline's ABI has."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CMAKE = Path(__file__).parents[1] / "src" / "cmake"
#: Those whose callbacks or lists of handles could not be converted.
REFUSED = {
    *("MPI_Alltoallw", "MPI_Ialltoallw", "MPI_Neighbor_alltoallw", "MPI_Ineighbor_alltoallw"),
    *("MPI_Comm_create_errhandler", "MPI_File_create_errhandler", "MPI_Win_create_errhandler"),
    *("MPI_Comm_create_keyval", "MPI_Type_create_keyval", "MPI_Win_create_keyval"),
    *("MPI_Grequest_start", "MPI_Op_create", "MPI_Register_datarep", "MPI_Type_get_contents"),
}
#: Of later versions of MPI than the ABI's 3.1, or taken out before.
OTHERS = {"MPI_Errhandler_create", "MPI_Keyval_create", "MPI_Neighbor_alltoallw_init"}
OTHERS |= {"MPI_Alltoallw_init", "MPI_Group_from_session_pset"}


def test_all_but_those_with_callbacks_are_carried(tmp_path: Path) -> None:
    include = Path(sys.prefix) / "include"
    if not (include / "mpi.h").exists() or not CMAKE.exists():
        pytest.skip("no mpi.h, or no sources here")
    out = tmp_path / "forward.cc"
    command = [sys.executable, str(CMAKE / "forward.py"), str(include)]
    subprocess.run([*command, str(CMAKE / "constants.txt"), str(out)], check=True)
    text = out.read_text()
    refused = set(re.findall(r'refuse\("(\w+)"\)', text))
    assert refused - OTHERS == REFUSED
    for name in ("Send", "Recv", "Allreduce", "Waitall", "Comm_split", "Comm_c2f", "Wtime"):
        assert f"MPIABI_{name}(" in text
    assert text.count("const abi::Constant MPIABI_") == 260
