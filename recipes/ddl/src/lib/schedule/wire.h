// The costs of messages between hosts.
#pragma once

namespace ddl {

// The costs of messages that the tree does not have. The defaults are those of MPI over TCP; in
// tests/bench's lab a message costs 75 us where four ranks share a processor.
struct Wire {
  double goodput = 1.0;       // the share of a bandwidth that is payload
  double bandwidth = 1.25e9;  // bytes/s of a host's link when none is known (else: their mean)
  double latency = 20e-6;     // s, of a host's link that has none in the tree
  double overhead = 20e-6;    // s, of a rank's processor for each message sent or received
  double processing = 0;      // s, of a rank's processor for each byte sent or received
  double within_host = 0;     // s per byte of the message, for the sum and the copies in a host
};

}  // namespace ddl
