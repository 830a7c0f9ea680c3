// The share of the data that each child of a group reduces.
#pragma once

#include <vector>

namespace ddl {

// In a direct reduce-scatter and all-gather of k children, child j with share v sends (and
// receives) 1 + v * (k - 2 + above) bytes per byte of data over a link of rate b. They are the data
// that others reduce, its share to the others, and `above` times its share at the levels above.
// These shares, which sum to 1, make the slowest of the links as fast as it can be: a slow link
// gets less, down to nothing. Rates of 0 are not known and count as the mean of the known ones.
std::vector<double> balance_shares(const std::vector<double>& rates, double above);

}  // namespace ddl
