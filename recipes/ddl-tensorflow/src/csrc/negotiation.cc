#include "negotiation.h"

#include <algorithm>
#include <utility>

namespace ddl_tensorflow {

void Negotiation::hear(int rank, const Announcement& announcement) {
  Heard& heard = heard_.try_emplace(announcement.name, size_).first->second;
  heard[rank].push_back(announcement);
  const auto is_empty = [](const auto& of_rank) { return of_rank.empty(); };
  if (std::any_of(heard.begin(), heard.end(), is_empty)) return;
  Agreement agreement{announcement.name, true, {}};
  for (auto& of_rank : heard) {
    agreement.is_same = agreement.is_same && of_rank.front().text == announcement.text;
    agreement.rows.push_back(of_rank.front().rows);
    of_rank.pop_front();
  }
  agreements_.push_back(std::move(agreement));
  if (std::all_of(heard.begin(), heard.end(), is_empty)) heard_.erase(announcement.name);
}

std::vector<Agreement> Negotiation::take_agreements() { return std::exchange(agreements_, {}); }

std::vector<int> Negotiation::missing(std::uint64_t name) const {
  std::vector<int> ranks;
  const auto found = heard_.find(name);
  for (int rank = 0; found != heard_.end() && rank < size_; ++rank) {
    if (found->second[rank].empty()) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace ddl_tensorflow
