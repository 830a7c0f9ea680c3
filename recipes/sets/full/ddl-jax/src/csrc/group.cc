#include "group.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <unordered_map>

#include "error.h"

namespace ddl_jax {
namespace {

// Tags of ddl_comm_create for groups made at the same time.
constexpr int kTags = DDL_TAG_JAX_PROGRAM - DDL_TAG_JAX_GROUPS;

struct Groups {
  std::mutex mutex;
  std::unordered_map<abi::Handle, std::unique_ptr<Group>> of_handle;
  // A communicator for the ranks of each program that has run, by their numbers. XLA asks all of
  // them for a new group but does not name them, so they tell each other their colors and keys.
  std::map<std::vector<int>, ddl_comm_t> of_programs;
  std::vector<int> program;  // the ranks, by number
};

// Never destroyed: XLA frees its communicators after the exit functions.
Groups& groups() {
  static auto* const the = new Groups;
  return *the;
}

// The arguments of MPI_Comm_split.
struct Split {
  int color;
  int key;
};

// The world ranks of one color in the order of their keys, which are 0, 1, 2, ...: those of XLA's
// devices. `splits` are those of the ranks of `program`.
std::vector<int> members_of(int color, const std::vector<Split>& splits,
                            const std::vector<int>& program) {
  std::map<int, int> of_key;
  std::size_t count = 0;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    if (splits[i].color != color) continue;
    of_key[splits[i].key] = program[i];
    ++count;
  }
  std::vector<int> members;
  for (const auto& [key, rank] : of_key) {
    if (of_key.size() == count && key == static_cast<int>(members.size())) {
      members.push_back(rank);
      continue;
    }
    ddl_abort(1,
              "JAX's collectives by ddl take one device per process, and this program has several; "
              "start more ranks instead, or set JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo");
  }
  return members;
}

Group make(const std::vector<int>& members, int rank) {
  const int size = static_cast<int>(members.size());
  Group group{MPI_COMM_NULL, nullptr, rank, size, {}};
  const int tag = DDL_TAG_JAX_GROUPS + members[0] % kTags;
  if (ddl_comm_create(members.data(), size, tag, &group.ddl) != DDL_SUCCESS) {
    end_job("a communicator of JAX");
  }
  // All have come by now, so MPI waits for nobody.
  MPI_Group all;
  MPI_Group some;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, size, members.data(), &some);
  MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, &group.mpi);
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  MPI_Comm_set_errhandler(group.mpi, MPI_ERRORS_RETURN);
  return group;
}

std::vector<int> program_now() {
  const std::lock_guard lock(groups().mutex);
  return groups().program;
}

ddl_comm_t communicator_of(const std::vector<int>& program) {
  {
    const std::lock_guard lock(groups().mutex);
    const auto found = groups().of_programs.find(program);
    if (found != groups().of_programs.end()) return found->second;
  }
  ddl_comm_t comm = nullptr;
  if (ddl_comm_create(program.data(), static_cast<int>(program.size()), DDL_TAG_JAX_PROGRAM,
                      &comm) != DDL_SUCCESS) {
    end_job("the collectives of JAX");
  }
  const std::lock_guard lock(groups().mutex);
  return groups().of_programs[program] = comm;
}

}  // namespace

Group* find_group(abi::Handle comm) {
  const std::lock_guard lock(groups().mutex);
  const auto found = groups().of_handle.find(comm);
  return found == groups().of_handle.end() ? nullptr : found->second.get();
}

void start_groups() {
  int size = 0;
  if (ddl_size(&size) != DDL_SUCCESS) end_job("the collectives of JAX");
  std::vector<int> everybody(size);
  std::iota(everybody.begin(), everybody.end(), 0);
  groups().program = everybody;
  communicator_of(everybody);
}

}  // namespace ddl_jax

using namespace ddl_jax;  // NOLINT: this file ends with the library's face

extern "C" {

// XLA asks for a communicator in its own thread, which looks at no code: an error ends the job.
DDL_API int MPIABI_Comm_split(abi::Handle comm, int color, int key, abi::Handle* result) {
  const std::vector<int> program = program_now();
  if (program.empty() || abi::value<MPI_Comm>(comm) != MPI_COMM_WORLD) {
    return MPI_Comm_split(abi::value<MPI_Comm>(comm), color, key, abi::Out<MPI_Comm>(result));
  }
  const Split mine{color, key};
  std::vector<Split> splits(program.size());
  if (ddl_comm_allgather(communicator_of(program), &mine, splits.data(), sizeof mine) !=
      DDL_SUCCESS) {
    end_job("a communicator of JAX, for which all ranks of a program must run it");
  }
  if (color == MPI_UNDEFINED) {
    *result = abi::handle(MPI_COMM_NULL);
    return MPI_SUCCESS;
  }
  auto group = std::make_unique<Group>(make(members_of(color, splits, program), key));
  *result = abi::handle(group->mpi);
  const std::lock_guard lock(groups().mutex);
  groups().of_handle[*result] = std::move(group);
  return MPI_SUCCESS;
}

// XLA frees in no order that ranks share, and after the end of MPI, too. ddl's end frees all.
DDL_API int MPIABI_Comm_free(abi::Handle* comm) {
  {
    const std::lock_guard lock(groups().mutex);
    if (groups().of_handle.erase(*comm) > 0) {
      *comm = abi::handle(MPI_COMM_NULL);
      return MPI_SUCCESS;
    }
  }
  return MPI_Comm_free(abi::Out<MPI_Comm>(comm));
}

// The `n` ranks of the program whose groups XLA will ask for from now on; 0: all ranks.
DDL_API void ddl_jax_set_program(const int* ranks, int n) {
  int size = 0;
  ddl_size(&size);
  std::vector<int> program(n == 0 ? size : n);
  if (n == 0) {
    std::iota(program.begin(), program.end(), 0);
  } else {
    std::copy_n(ranks, n, program.begin());
  }
  const std::lock_guard lock(groups().mutex);
  groups().program = std::move(program);
}

// How many collectives the groups of this rank have carried out.
DDL_API unsigned long long ddl_jax_collectives(void) {
  const std::lock_guard lock(groups().mutex);
  unsigned long long sum = 0;
  for (const auto& [handle, group] : groups().of_handle) {
    ddl_stats stats{};
    if (ddl_comm_stats(group->ddl, &stats, sizeof stats) == DDL_SUCCESS) sum += stats.collectives;
  }
  return sum;
}
}
