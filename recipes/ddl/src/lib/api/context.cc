#include "api/context.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <sstream>

#include "api/launchers.h"
#include "base/timeout.h"
#include "comm/timeline_of_job.h"
#include "reduce/kernels.h"
#include "topology/oversubscription_warning.h"
#include "transport/monitored_barrier.h"
#include "transport/watchdog.h"

namespace ddl {
namespace {

// Whether MPI is ours to end. It outlives a failed start, since MPI cannot be started twice.
bool g_owns_mpi = false;

// Start and stop hold the first mutex throughout; other threads need only read the pointer. It is
// never destroyed: in a process that a rank has forked, nothing may end what is the rank's.
std::mutex g_life_mutex;
std::shared_ptr<Context>& g_context = *new std::shared_ptr<Context>;
// The process that started the library: the rank.
pid_t g_rank_process = 0;

// Whether a start has failed on all ranks alike: MPI is then ended with the process.
bool g_has_failed_alike = false;
// The error of a start that did not fail alike: old messages may be under way.
std::optional<Error> g_start_failure;

void end_mpi() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (!g_owns_mpi || is_finalized) return;
  const Watchdog watchdog("MPI_Finalize");
  MPI_Finalize();
}

void drop_context() {
  if (is_forked()) return;
  std::atomic_store(&g_context, std::shared_ptr<Context>());
  if (g_has_failed_alike) end_mpi();
}

// While it lives, UCX below MPI makes no sockets where all ranks are on this host: they would
// listen on the host's addresses, and nobody would come. The user's choice goes before; programs
// that this one starts later do not have it.
class NoSockets {
 public:
  NoSockets() : is_set_(std::getenv(kVariable) == nullptr && are_all_ranks_here()) {
    if (is_set_) setenv(kVariable, "^tcp", 1);
  }
  ~NoSockets() {
    if (is_set_) unsetenv(kVariable);
  }
  NoSockets(const NoSockets&) = delete;
  NoSockets& operator=(const NoSockets&) = delete;

 private:
  static constexpr const char* kVariable = "UCX_TLS";
  bool is_set_;
};

// Starts MPI unless someone has.
void start_mpi() {
  int is_initialized = 0;
  int is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_finalized) {
    fail(DDL_ERROR_ARGUMENT,
         "ddl_init: MPI has already been finalised in this process and cannot be started again");
  }
  if (is_initialized) return;
  int provided = MPI_THREAD_SINGLE;
  const Watchdog watchdog("MPI_Init");
  const NoSockets no_sockets;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  g_owns_mpi = true;
  // Calls on several requests report errors through this handler, not through a communicator's.
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

// This handler serves programs that end without ddl_finalize. MPICH takes leave of the launcher in
// such a handler, too, if MPI_Finalize was called before it. Ours is the later one and so runs
// first. A static destructor would come too late, and the launcher would kill the ranks that are
// still ending.
void end_at_exit() {
  static const int registered = std::atexit(drop_context);
  static_cast<void>(registered);
}

MPI_Comm duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  return copy;
}

std::vector<int> iota(int n) {
  std::vector<int> numbers(n);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Returns when all `size` ranks are there, and all have good `settings`. `error` is the fault of
// this rank's own. Ranks that differ in the settings compared here would wait for each other in
// Topology::discover.
void agree_on_start(int size, const Settings& settings, const std::optional<Error>& error) {
  if (g_start_failure) {
    fail(g_start_failure->code(),
         "ddl_init cannot succeed after an earlier error: ", g_start_failure->what());
  }
  std::string alike = settings.topology_file.empty() ? "no -topology" : "a -topology";
  alike += settings.mode == 0 ? " and no -mode" : " and -mode";
  for (const int dimension : settings.dimensions) alike += " " + std::to_string(dimension);
  std::vector<Peer> peers;
  for (int rank = 0; rank < size; ++rank) peers.push_back({rank, ""});
  MpiTransport everybody(MPI_COMM_WORLD, peers, MpiTransport::Use::kBorrowed);
  everybody.on_end = [](const Error& e) {
    std::fprintf(stderr, "[ddl] MPI ends this process in ddl_init: %s\n", e.what());
  };
  try {
    monitored_barrier(everybody, iota(size), tags::kProgramGroups.first, alike, error);
  } catch (const Error& e) {
    if (is_agreed(e)) {
      g_has_failed_alike = true;
    } else {
      g_start_failure = e;
    }
    throw;
  }
}

MPI_Group group_of(MPI_Comm comm) {
  MPI_Group group = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm, &group), "MPI_Comm_group");
  return group;
}

}  // namespace

Context::Context(const std::string& options) {
  std::optional<Error> error;
  try {
    settings_ = parse_settings(options);
    g_timeout_seconds = settings_.timeout;
  } catch (const Error& e) {
    error = e;
  }
  start_mpi();  // the others do so, too, and shall not wait for us there
  g_rank_process = getpid();
  end_at_exit();
  int size = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  check_launchers(size);
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  const bool has_timeline = !settings_.timeline_file.empty();
  try {
    check_mode(settings_, size);
    if (has_timeline && rank == 0) {
      timeline_file_ = std::make_unique<TraceFile>(settings_.timeline_file);
      timeline_file_->remove_parts();
    }
  } catch (const Error& e) {
    error = e;
  }
  agree_on_start(size, settings_, error);
  if (has_timeline) timeline_ = std::make_unique<Timeline>(settings_.timeline_file, rank);
  const MPI_Comm comm = duplicate(MPI_COMM_WORLD);
  world_ = std::make_unique<Comm>(comm, Topology::discover(comm, settings_), iota(size), settings_,
                                  timeline_.get());
  if (timeline_) begin_timeline(*world_, timeline_.get());
  warn_of_oversubscription(world_->transport(), world_->topology());
  if (settings_.debug_level >= 1 && world_->rank() == 0) print_topology();
}

Context::~Context() {
  save_timeline();
  groups_.clear();
  world_.reset();
  end_mpi();
}

Comm* Context::create(const std::vector<int>& world_ranks, int tag) {
  std::vector<int> sorted = world_ranks;
  std::sort(sorted.begin(), sorted.end());
  const int size = world_->size();
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= size) {
    fail(DDL_ERROR_ARGUMENT, "ddl_comm_create: the ranks must be from 0 to ", size - 1);
  }
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    fail(DDL_ERROR_ARGUMENT, "ddl_comm_create: a rank is listed twice");
  }
  if (!std::binary_search(sorted.begin(), sorted.end(), world_->rank())) {
    fail(DDL_ERROR_ARGUMENT, "ddl_comm_create: only members may call it; rank ", world_->rank(),
         " is not in the list");
  }
  auto group = world_->subset(world_ranks, tag);
  const std::lock_guard<std::mutex> lock(mutex_);
  Comm* handle = group.get();
  groups_.emplace(handle, std::move(group));
  return handle;
}

Comm* Context::create(MPI_Comm comm) {
  MPI_Group all = group_of(world_->transport().comm());
  MPI_Group members = group_of(comm);
  int size = 0;
  MPI_Group_size(members, &size);
  std::vector<int> world_ranks(size);
  check_mpi(MPI_Group_translate_ranks(members, size, iota(size).data(), all, world_ranks.data()),
            "MPI_Group_translate_ranks");
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  if (std::count(world_ranks.begin(), world_ranks.end(), MPI_UNDEFINED) > 0) {
    fail(DDL_ERROR_ARGUMENT, "the MPI communicator has ranks outside MPI_COMM_WORLD");
  }
  std::size_t hash = 0;  // threads may do so for several at a time
  for (const int rank : world_ranks) hash = hash * 31 + static_cast<std::size_t>(rank);
  world_->meet(world_ranks, tags::kMpiGroups.at(static_cast<int>(hash % tags::kMpiGroups.count)));
  auto group = std::make_unique<Comm>(duplicate(comm), world_->topology().subset(world_ranks),
                                      world_ranks, settings_, timeline_.get());
  const std::lock_guard<std::mutex> lock(mutex_);
  Comm* handle = group.get();
  groups_.emplace(handle, std::move(group));
  return handle;
}

void Context::destroy(Comm* comm) {
  std::unique_ptr<Comm> group;  // ends, and waits, without the lock
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = groups_.find(comm);
    if (found == groups_.end()) {
      fail(DDL_ERROR_ARGUMENT, "ddl_comm_free: not a communicator made by ddl_comm_create");
    }
    group = std::move(found->second);
    groups_.erase(found);
  }
  group->queue().drain();
}

Comm& Context::resolve(ddl_comm_t handle) {
  if (handle == DDL_COMM_WORLD) return *world_;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = groups_.find(reinterpret_cast<Comm*>(handle));
  if (found == groups_.end()) {
    fail(DDL_ERROR_ARGUMENT, "not a communicator, or one that has been freed");
  }
  return *found->second;
}

void Context::synchronize_end() {
  std::vector<Comm*> groups;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [comm, group] : groups_) groups.push_back(comm);
  }
  for (Comm* group : groups) group->queue().drain();
  Call call;
  call.collective = Collective::kFinalize;
  world_->run(call, [&] { world_->agreement().begin(call); });
  if (timeline_) end_timeline(*world_, timeline_.get(), timeline_file_.get());
  has_timeline_ended_ = true;
}

void Context::save_timeline() {
  if (timeline_ && !has_timeline_ended_) timeline_->save_part();
  timeline_file_.reset();
}

void Context::print_topology() const {
  std::fprintf(stderr, "[ddl] %d ranks on %d hosts, kernels: %s\n", world_->size(),
               world_->num_hosts(), kernels().name);
  for (const Host& host : world_->topology().hosts()) {
    std::string ranks;
    for (std::size_t i = 0; i < host.ranks.size(); ++i) {
      ranks += " " + std::to_string(host.ranks[i]);
      if (host.sockets[i] >= 0) ranks += "@" + std::to_string(host.sockets[i]);  // socket
    }
    const std::vector<int> summed = host.sockets_in_sums(settings_);
    const bool by_socket = *std::max_element(summed.begin(), summed.end()) > 0;
    std::fprintf(stderr, "[ddl]   %s: ranks%s%s\n", host.name.c_str(), ranks.c_str(),
                 by_socket ? " (rank@socket), summed by socket" : "");
  }
  std::istringstream lines(describe_tree(world_->topology().tree()));
  for (std::string line; std::getline(lines, line);) {
    std::fprintf(stderr, "[ddl]   %s\n", line.c_str());
  }
}

std::shared_ptr<Context> context() {
  std::shared_ptr<Context> current = context_to_read();
  if (!is_forked()) return current;
  fail(DDL_ERROR_NOT_INITIALIZED, "process ", getpid(), " was forked by ",
       current->world().describe(current->world().rank()), ", process ", g_rank_process,
       ", which alone may communicate; start processes before ddl_init, or by multiprocessing's "
       "'spawn'");
}

std::shared_ptr<Context> context_to_read() {
  std::shared_ptr<Context> current = std::atomic_load(&g_context);
  if (!current) fail(DDL_ERROR_NOT_INITIALIZED, "ddl is not initialised; call ddl_init first");
  return current;
}

bool is_forked() { return g_rank_process != 0 && getpid() != g_rank_process; }

bool has_context() { return std::atomic_load(&g_context) != nullptr; }

void start(const char* options) {
  const std::lock_guard<std::mutex> lock(g_life_mutex);
  if (has_context()) return;
  if (options == nullptr) options = std::getenv("DDL_OPTIONS");
  std::atomic_store(&g_context, std::make_shared<Context>(options == nullptr ? "" : options));
}

void stop() {
  const std::lock_guard<std::mutex> lock(g_life_mutex);
  context()->synchronize_end();
  drop_context();
}

}  // namespace ddl
