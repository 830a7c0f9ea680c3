#include "comm/comm.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "base/schedule_kinds.h"
#include "comm/collective_table.h"
#include "comm/host_setup.h"
#include "reduce/kernels.h"
#include "transport/monitored_barrier.h"

namespace ddl {
namespace {

std::vector<Peer> make_peers(const Topology& topology, const std::vector<int>& world_ranks) {
  std::vector<Peer> peers;
  for (int rank = 0; rank < topology.size(); ++rank) {
    peers.push_back({world_ranks[rank], topology.host_of(rank).name});
  }
  return peers;
}

// With the agreement, each host of a group sends its own data over the group's uplink, where a
// schedule sends them once. And the first rank of a host does the work of all.
std::size_t choose_small_bytes(const Topology& topology, const Settings& settings) {
  constexpr std::size_t kMaxOfHost = std::size_t{256} << 10;
  const bool is_chosen = settings.is_deterministic || settings.schedule != kAnySchedule;
  if (topology.hosts().size() == 1 || is_chosen) return 0;
  int widest = 1;
  for (const Node& group : topology.tree().children) widest = std::max(widest, group.num_hosts());
  return std::min(HostGroup::kSmallBytes / (widest == 1 ? 1 : 2 * widest),
                  kMaxOfHost / topology.max_local_size());
}

}  // namespace

Comm::Comm(MPI_Comm comm, Topology topology, const std::vector<int>& world_ranks,
           const Settings& settings, Timeline* timeline)
    : topology_(std::move(topology)),
      settings_(settings),
      timeline_(timeline),
      small_bytes_(choose_small_bytes(topology_, settings_)),
      transport_(comm, make_peers(topology_, world_ranks)),
      mailbox_(transport_),
      host_(make_host_group(transport_, topology_, settings_)),
      agreement_(host_, transport_, topology_),
      plans_(topology_, settings_, chunking_for(topology_, host_), host_index()),
      reducer_(make_reducer(*this, settings.fusion_bytes)),
      device_(make_device(*this)),
      queue_(
          {settings.fusion_bytes,
           std::chrono::duration<double, std::milli>(settings.fusion_wait_ms)},
          [this](const std::vector<Arguments>& queued) { return reducer_->run(queued); },
          [this](const Error& error) { agreement_.give_up(error); }) {
  if (timeline_ != nullptr) join_timeline(world_ranks);
}

Comm::~Comm() {
  // The process ends without ddl_finalize: neither our own thread nor the others shall wait long.
  if (queue_.is_ahead()) {
    agreement_.tell_others(
        Error(DDL_ERROR_PEER_LOST, "it ended with asynchronous operations under way"));
  }
  if (!agreement_.is_usable()) transport_.abandon();
}

void Comm::meet(const std::vector<int>& ranks, int tag) {
  std::string group = "a group of " + std::to_string(ranks.size()) + " ranks:";
  for (const int rank : ranks) group += " " + std::to_string(transport_.peers()[rank].world_rank);
  agreement_.check_usable();
  try {
    monitored_barrier(transport_, ranks, tag, group);
  } catch (...) {
    with_current_error([this](const Error& error) {
      if (!is_agreed(error)) agreement_.give_up(error);
    });
    throw;
  }
}

// MPI has no error class for this; MPICH, which has 2048 communicators, has a sentence.
static void check_has_room(int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  if (std::strstr(text, "Too many communicators") == nullptr) return;
  fail(DDL_ERROR_MPI,
       "ddl_comm_create: MPI has no communicator left for another group; destroy groups that are "
       "no longer needed");
}

std::unique_ptr<Comm> Comm::subset(const std::vector<int>& ranks, int tag) {
  meet(ranks, tag);  // MPI would wait for them without a limit
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(transport_.comm(), &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
            "MPI_Group_incl");
  MPI_Comm comm = MPI_COMM_NULL;
  const int code = MPI_Comm_create_group(transport_.comm(), members, tag, &comm);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  check_has_room(code);
  check_mpi(code, "MPI_Comm_create_group");
  std::vector<int> world_ranks;
  for (const int rank : ranks) world_ranks.push_back(transport_.peers()[rank].world_rank);
  return std::make_unique<Comm>(comm, topology_.subset(ranks), world_ranks, settings_, timeline_);
}

Device& Comm::device() {
  if (!device_) check_device_present("a buffer on a GPU");
  return *device_;
}

ddl_stats Comm::stats() const {
  return {num_collectives_.load(std::memory_order_relaxed), queue_.num_submitted(),
          reducer_->num_requests(), reducer_->num_messages()};
}

std::byte* Comm::workspace(std::size_t nbytes) {
  if (workspace_.size() < nbytes) workspace_ = std::vector<std::byte>(nbytes);
  return workspace_.data();
}

void Comm::run(const Call& call, const std::function<void()>& collective) {
  std::unique_lock<std::mutex> one_at_a_time(mutex_);
  if (queue_.is_ahead()) {
    one_at_a_time.unlock();
    queue_.run_behind([&] { run(call, collective); });
    return;
  }
  agreement_.check_usable();
  const auto every = static_cast<std::uint64_t>(settings_.dump_every);
  const bool is_traced =
      settings_.debug_level >= 2 || (every > 0 && (agreement_.num_calls() + 1) % every == 0);
  const bool is_timed = is_traced || timeline_ != nullptr;
  const Clock::time_point start = is_timed ? Clock::now() : Clock::time_point();
  try {
    or_give_up([&] {
      collective();
      end_copies();
    });
  } catch (...) {
    if (timeline_ != nullptr) {
      record(call, start, Clock::now(), true);
      // The process may not come to its end in peace.
      if (!agreement_.is_usable()) timeline_->save_part();
    }
    throw;
  }
  if (call.collective != Collective::kIallreduce) {
    count_collective();
  }
  if (!is_timed) return;
  const Clock::time_point end = Clock::now();
  if (timeline_ != nullptr) record(call, start, end, false);
  if (is_traced) {
    const std::chrono::duration<double, std::micro> elapsed = end - start;
    std::fprintf(stderr, "[ddl] %s: call %llu: %s took %.1f us\n", describe(rank()).c_str(),
                 static_cast<unsigned long long>(agreement_.num_calls()),
                 ddl::describe(agreement_.announced(call)).c_str(), elapsed.count());
  }
}

// The first rank knows a number that no other group has.
void Comm::join_timeline(const std::vector<int>& world_ranks) {
  long id = rank() == 0 ? timeline_->new_group_id() : std::numeric_limits<long>::max();
  Batch batch(transport_);
  batch.all_min(&id, 1);
  batch.wait();
  timeline_group_ = timeline_->add_group({id, world_ranks});
  transport_.timeline = timeline_;
  transport_.on_end = [this, tell = transport_.on_end](const Error& error) {
    tell(error);
    timeline_->save_part();
  };
}

void Comm::record(const Call& call, Clock::time_point begin, Clock::time_point end,
                  bool has_failed) {
  const Row& row = row_of(call.collective);
  const bool is_reduction = row.unit == Unit::kElements;
  const Call announced = agreement_.announced(call);
  CollectiveEvent event{};
  event.begin = nanoseconds(begin);
  event.end = nanoseconds(end);
  event.number = agreement_.num_calls();
  event.bytes = bytes_of(call, size());
  event.name = row.name;
  event.type = is_reduction ? static_cast<std::int32_t>(call.type) : -1;
  event.op = is_reduction ? static_cast<std::int32_t>(call.op) : -1;
  event.root = row.has_root ? call.root : -1;
  event.group = timeline_group_;
  event.is_fused = call.collective != Collective::kIallreduce && announced.fusion != 0;
  event.is_on_device = call.is_on_device != 0;
  event.has_failed = has_failed;
  if (num_hosts() == 1) {
    event.schedule = CollectiveEvent::kWithinHost;
  } else if (agreement_.is_piggybacked()) {
    event.schedule = CollectiveEvent::kPiggybacked;
  } else if (is_deterministic() && is_reduction) {
    event.schedule = CollectiveEvent::kOrdered;
  } else if (row.plan != nullptr && event.bytes > 0) {
    event.schedule = plans_.schedule(event.bytes);
  } else {
    event.schedule = CollectiveEvent::kNone;
  }
  timeline_->add(event);
}

}  // namespace ddl
