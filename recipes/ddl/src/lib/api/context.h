// The process's one library state, between ddl_init and ddl_finalize.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "comm/comm.h"
#include "timeline/timeline.h"
#include "timeline/trace_file.h"

namespace ddl {

class Context {
 public:
  // Starts MPI if need be, finds the topology and connects all ranks. Collective. `options` as in
  // DDL_OPTIONS.
  explicit Context(const std::string& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Comm& world() { return *world_; }
  // Called by the members only.
  Comm* create(const std::vector<int>& world_ranks, int tag);
  // Makes a communicator of the ranks of an MPI communicator; all of these call it.
  Comm* create(MPI_Comm comm);
  // Waits for the queued operations.
  void destroy(Comm* comm);
  // The communicator behind a handle; null is the world. Throws DDL_ERROR_ARGUMENT on others.
  Comm& resolve(ddl_comm_t handle);

  // Waits for the queued operations, and checks that all ranks end together. The destructor then
  // ends MPI if this library began it.
  void synchronize_end();
  // The process ends without it: this rank's part of the timeline goes into a file of its own.
  void save_timeline();

 private:
  void print_topology() const;

  Settings settings_;
  std::mutex mutex_;
  std::unique_ptr<TraceFile> timeline_file_;  // rank 0's
  std::unique_ptr<Timeline> timeline_;        // null: none is asked for
  bool has_timeline_ended_ = false;
  std::unique_ptr<Comm> world_;
  std::map<Comm*, std::unique_ptr<Comm>> groups_;
};

// Throws DDL_ERROR_NOT_INITIALIZED when there is none, and in a process that a rank has forked: the
// library and MPI are the rank's.
std::shared_ptr<Context> context();
// Forked processes have it, too: they may ask where they are.
std::shared_ptr<Context> context_to_read();
bool has_context();
// Whether this process was forked from the one that started the library.
bool is_forked();
// Collective. A second start changes nothing.
void start(const char* options);
void stop();

}  // namespace ddl
