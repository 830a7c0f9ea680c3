#include "api/launchers.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "base/error.h"

namespace ddl {
namespace {

// Each launcher's variables for a process: its own number among the tasks, and how many there are.
// The variable of the number is what tells a task from a job's script, which has the size alone.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* fix;
};

constexpr char kUseDdlrun[] = "start the program with ddlrun";
constexpr char kUseTorch[] =
    "call torch.distributed.init_process_group(\"ddl\") before anything else of ddl, or start the "
    "program with ddlrun";

constexpr Launcher kLaunchers[] = {
    // srun's manual page, "output environment variables"
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
     "start the program with `srun --mpi=pmi2`, or with ddlrun"},
    // mpirun's manual page of Open MPI; jsrun sets these, too
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", kUseDdlrun},
    // IBM's documentation of jsrun
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", kUseDdlrun},
    // MVAPICH2's user guide
    {"MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", kUseDdlrun},
    // flux-environment's manual page
    {"flux run", "FLUX_TASK_RANK", "FLUX_JOB_SIZE",
     "start the program with `flux run -o pmi=simple`, or with ddlrun"},
    // torchrun's documentation; accelerate and others set the same
    {"torchrun", "RANK", "WORLD_SIZE", kUseTorch},
};

long number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' ? value : -1;
}

}  // namespace

void check_launchers(int mpi_size) {
  // With PMI_SIZE, MPI has been told that there is one rank.
  if (mpi_size != 1 || number("PMI_SIZE") == 1) return;
  for (const Launcher& launcher : kLaunchers) {
    const long rank = number(launcher.rank);
    const long size = number(launcher.size);
    if (rank < 0 || size <= 1) continue;
    fail(DDL_ERROR_MPI, launcher.name, " started ", size, " processes (", launcher.size, "=", size,
         "; this one is ", launcher.rank, "=", rank,
         "), but MPI in this one knows of itself alone; ", launcher.fix,
         ". A program that is to be alone runs under `env -u ", launcher.size, "`");
  }
}

bool are_all_ranks_here() {
  const char* const known_to_mpi[] = {"PMI_FD", "PMI_PORT", "PMI_RANK", "PMIX_RANK"};
  const bool is_alone = std::none_of(std::begin(known_to_mpi), std::end(known_to_mpi),
                                     [](const char* name) { return std::getenv(name) != nullptr; });
  // Hydra's
  const long here = number("MPI_LOCALNRANKS");
  return is_alone || (here > 0 && here == number("PMI_SIZE"));
}

}  // namespace ddl
