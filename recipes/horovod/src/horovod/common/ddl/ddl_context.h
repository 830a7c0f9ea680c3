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

#ifndef HOROVOD_DDL_CONTEXT_H
#define HOROVOD_DDL_CONTEXT_H

#include <ddl/ddl.h>

#include <string>

#define OMPI_SKIP_MPICXX
#include "mpi.h"

namespace horovod {
namespace common {

// Throws std::runtime_error with the library's own sentence unless `result` is
// DDL_SUCCESS. `call` is the name of the function that gave it.
void CheckDDL(DDL_Result result, const char* call);

// The library's life within this process, as far as it is Horovod's: whoever
// started it (the program, or Horovod for another framework) ends it.
class DDLContext {
 public:
  // Whether the library runs, or `global_comm` has all ranks of the job, as
  // starting it needs.
  static bool CanInitialize(MPI_Comm global_comm);

  // Starts the library unless it runs already. Collective over the ranks of
  // `global_comm`. MPI must run. Throws std::runtime_error with what is wrong
  // and what to do.
  void Initialize(MPI_Comm global_comm);

  // Takes leave of the library, which goes on: it may have other users in this
  // process, and Initialize() may be called again.
  void Finalize() { enabled_ = false; }

  // Ends the library if Initialize() started it, when every rank of the job has
  // come to this call. To be called once, before MPI ends.
  void End();

  bool IsEnabled() const { return enabled_; }

 private:
  bool enabled_ = false;
  bool should_finalize_ = false;
};

// The communicator of one process set, made by its first operation: all its
// ranks carry out the same operations in the same order.
class DDLProcessSetContext {
 public:
  // `mpi_comm` is the process set's. Throws std::runtime_error.
  ddl_comm_t Communicator(MPI_Comm mpi_comm);

  // Collective over the process set's ranks, as they agree on its end.
  void Finalize();

 private:
  ddl_comm_t comm_ = nullptr;
};

}  // namespace common
}  // namespace horovod

#endif  // HOROVOD_DDL_CONTEXT_H
