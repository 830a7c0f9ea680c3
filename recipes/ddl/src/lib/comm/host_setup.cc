#include "comm/host_setup.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ddl {
namespace {

// Bytes of every rank's part of a chunk. Inside a host, chunks that stay in the caches are best;
// between hosts, longer messages are. A chunk has space for a piece of every rank.
std::size_t choose_chunk(const Topology& topology, const Settings& settings) {
  constexpr std::size_t kWithinHost = std::size_t{64} << 10;
  constexpr std::size_t kBetweenHosts = std::size_t{2} << 20;
  const std::size_t natural = topology.hosts().size() > 1 ? kBetweenHosts : kWithinHost;
  const std::size_t wanted = settings.chunk_bytes > 0 ? settings.chunk_bytes : natural;
  const std::size_t least = static_cast<std::size_t>(topology.size()) * 64;
  return (std::max(wanted, least) + 63) / 64 * 64;
}

// Less than the greatest number, whose negative there is, too.
long hash_of(const std::string& text) {
  return static_cast<long>(std::hash<std::string>()(text) >> 2);
}

// Ranks that cut, fuse or sum differently would not meet.
void check_same_on_all_ranks(MpiTransport& transport, std::size_t chunk, const Settings& settings) {
  struct Setting {
    const char* name;
    long value;
    bool is_number;  // that says something in a message
  };
  const Setting same[] = {
      {"DDL_SHM_CHUNK", static_cast<long>(chunk), true},
      {"DDL_FAKE_SOCKETS", settings.fake_sockets, true},
      {"-fusion_bytes (or DDL_FUSION_BYTES)", static_cast<long>(settings.fusion_bytes), true},
      {"-deterministic", settings.is_deterministic ? 1 : 0, false},
      {"-schedule", settings.schedule, false},
      {"-timeline (or DDL_TIMELINE)", hash_of(settings.timeline_file), false},
  };
  std::vector<long> bounds;  // of each, the least and the negated greatest
  for (const Setting& setting : same) {
    bounds.push_back(setting.value);
    bounds.push_back(-setting.value);
  }
  Batch batch(transport);
  batch.all_min(bounds.data(), static_cast<int>(bounds.size()));
  batch.wait();
  auto bound = bounds.begin();
  for (const Setting& setting : same) {
    const long least = *bound++;
    const long most = -*bound++;
    if (least == most) continue;
    if (setting.is_number) {
      fail(DDL_ERROR_ARGUMENT, setting.name, " differs between ranks: ", least, " and ", most);
    }
    fail(DDL_ERROR_ARGUMENT, setting.name, " differs between ranks; give all of them the same");
  }
}

}  // namespace

HostGroup make_host_group(MpiTransport& transport, const Topology& topology,
                          const Settings& settings) {
  const int rank = transport.rank();
  const std::size_t chunk = choose_chunk(topology, settings);
  check_same_on_all_ranks(transport, chunk, settings);
  constexpr int kSlotsInsideHost = 32;
  // Chunks under way. Between hosts, they give every link something to carry. Inside one, they
  // spare ranks waiting, and a slot's last chunk has left its readers' caches before it is written
  // again. Untouched slots take no memory.
  const int slots = topology.hosts().size() > 1 ? kSlotsBetweenHosts : kSlotsInsideHost;
  std::optional<HostGroup> group;
  std::optional<Error> error;
  try {
    const Host& host = topology.host_of(rank);
    group.emplace(transport, host.ranks, host.sockets_in_sums(settings), topology.local_rank(rank),
                  chunk, slots, settings.fake_far);
  } catch (...) {
    with_current_error([&](const Error& e) { error = e; });
  }
  long is_ok = error ? 0 : 1;
  Batch batch(transport);
  batch.all_min(&is_ok, 1);
  batch.wait();
  if (error) throw *error;
  if (is_ok == 0) {
    fail(DDL_ERROR_SYSTEM, "another rank could not set up shared memory; see its message");
  }
  return std::move(*group);
}

Chunking chunking_for(const Topology& topology, const HostGroup& host) {
  // Between hosts, lane k joins the k-th rank of every host; every host has that many ranks.
  Chunking chunking = usual_chunking(topology.tree(), topology.min_local_size());
  chunking.slots = host.slots();
  chunking.most_chunk = std::min(chunking.most_chunk, host.chunk_bytes());
  chunking.least_chunk = std::min(chunking.least_chunk, chunking.most_chunk);
  return chunking;
}

}  // namespace ddl
