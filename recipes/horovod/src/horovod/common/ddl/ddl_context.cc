// Copyright DDL-CE contributors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.
// ============================================================================

#include "ddl_context.h"

#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../logging.h"

namespace horovod {
namespace common {

namespace {

// Programs that use ddl themselves make groups with tags counted from zero. Each
// framework has its own Horovod, with a thread of its own, and a tag: their
// communicators of the same ranks may be made at the same time.
constexpr int kTag = HOROVOD_DDL_TAG;
static_assert(kTag >= DDL_TAG_HOROVOD, "the tags below are of other frameworks");

int Size(MPI_Comm comm) {
  int size;
  MPI_Comm_size(comm, &size);
  return size;
}

std::vector<int> WorldRanks(MPI_Comm comm) {
  int size = Size(comm);
  std::vector<int> ranks(size);
  std::vector<int> world_ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  MPI_Group group;
  MPI_Group world_group;
  MPI_Comm_group(comm, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world_group);
  MPI_Group_translate_ranks(group, size, ranks.data(), world_group, world_ranks.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world_group);
  return world_ranks;
}

}  // namespace

void CheckDDL(DDL_Result result, const char* call) {
  if (result != DDL_SUCCESS) {
    throw std::runtime_error(std::string(call) + " failed: " + ddl_last_error());
  }
}

bool DDLContext::CanInitialize(MPI_Comm global_comm) {
  return ddl_initialized() || Size(global_comm) == Size(MPI_COMM_WORLD);
}

void DDLContext::Initialize(MPI_Comm global_comm) {
  if (!CanInitialize(global_comm)) {
    throw std::runtime_error("DDL operations need all " + std::to_string(Size(MPI_COMM_WORLD)) +
                             " ranks of the job, and Horovod has only " +
                             std::to_string(Size(global_comm)) +
                             ": call ddl.init() on all ranks before hvd.init(), or set "
                             "HOROVOD_CPU_OPERATIONS=MPI.");
  }
  if (!ddl_initialized()) {
    // NULL: the value of DDL_OPTIONS, if it is set.
    CheckDDL(ddl_init(nullptr), "ddl_init");
    should_finalize_ = true;
  }
  enabled_ = true;
  LOG(DEBUG) << "DDL context enabled, library version " << ddl_version();
}

void DDLContext::End() {
  if (!should_finalize_ || !ddl_initialized()) {
    return;
  }
  should_finalize_ = false;
  // A rank may have work of its own after training, for longer than the
  // library waits for a rank; so the others wait here, and leave it the CPU.
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  int all_have_come = 0;
  while (MPI_Test(&request, &all_have_come, MPI_STATUS_IGNORE) == MPI_SUCCESS && !all_have_come) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (ddl_finalize() != DDL_SUCCESS) {
    LOG(WARNING) << "ddl_finalize failed: " << ddl_last_error();
  }
}

ddl_comm_t DDLProcessSetContext::Communicator(MPI_Comm mpi_comm) {
  if (comm_ == nullptr) {
    auto ranks = WorldRanks(mpi_comm);
    CheckDDL(ddl_comm_create(ranks.data(), (int)ranks.size(), kTag, &comm_), "ddl_comm_create");
  }
  return comm_;
}

void DDLProcessSetContext::Finalize() {
  // ddl_finalize, when the program called it first, has freed it.
  if (comm_ != nullptr && ddl_initialized() && ddl_comm_free(comm_) != DDL_SUCCESS) {
    LOG(WARNING) << "ddl_comm_free failed: " << ddl_last_error();
  }
  comm_ = nullptr;
}

}  // namespace common
}  // namespace horovod
