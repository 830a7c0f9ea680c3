#include "schedule/shares.h"

#include <algorithm>
#include <cstddef>

namespace ddl {
namespace {

std::vector<double> fill_unknown(std::vector<double> rates) {
  double sum = 0;
  int known = 0;
  for (const double rate : rates) {
    sum += rate;
    known += rate > 0 ? 1 : 0;
  }
  const double mean = known > 0 ? sum / known : 1.0;
  for (double& rate : rates) {
    if (rate <= 0) rate = mean;
  }
  return rates;
}

}  // namespace

std::vector<double> balance_shares(const std::vector<double>& given, double above) {
  const std::vector<double> rates = fill_unknown(given);
  const auto k = static_cast<double>(rates.size());
  const double slope = k - 2 + above;
  const auto share = [&](double rate, double time) {
    return std::min(1.0, std::max(0.0, (time * rate - 1) / slope));
  };
  const auto total = [&](double time) {
    double sum = 0;
    for (const double rate : rates) sum += share(rate, time);
    return sum;
  };
  std::vector<double> shares(rates.size(), 1.0 / k);
  // Shares cost nothing, or links are alike: equal ones, exactly.
  const auto [slowest, fastest] = std::minmax_element(rates.begin(), rates.end());
  if (slope <= 0 || *slowest == *fastest) return shares;

  // The least time in which the links can carry all shares; total() rises with it.
  double low = 0;
  double high = (1 + slope) / *slowest;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (total(middle) < 1 ? low : high) = middle;
  }
  const double sum = total(high);
  for (std::size_t j = 0; j < rates.size(); ++j) shares[j] = share(rates[j], high) / sum;
  return shares;
}

}  // namespace ddl
