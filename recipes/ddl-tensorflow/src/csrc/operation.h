// One call of a collective on this rank.
#pragma once

#include <ddl/ddl.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddl_tensorflow {

// `count` elements to reduce over the ranks; in place when send == recv.
struct Reduction {
  const void* send;
  void* recv;
  std::size_t count;
  DDL_Type type;
  DDL_Op op;
};

class Operation {
 public:
  explicit Operation(std::string name) : name_(std::move(name)) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // The ranks match operations by it.
  const std::string& name() const { return name_; }
  // The properties that must be the same on all ranks, a line for the call and one for each tensor.
  virtual const std::vector<std::string>& lines() const = 0;
  // The name of each line's subject in messages, which may differ between ranks.
  virtual const std::vector<std::string>& labels() const = 0;
  // This rank's first dimension, where ranks may differ.
  virtual std::int64_t rows() const { return 0; }

  // An allreduce gives its parts, which travel together with those of others; `run` comes after.
  virtual std::vector<Reduction> reductions() { return {}; }
  // `rows` are those of all ranks.
  virtual absl::Status run(ddl_comm_t comm, const std::vector<std::int64_t>& rows) = 0;
  // Called once, at the end, on any thread.
  virtual void finish(const absl::Status& status) = 0;

 private:
  std::string name_;
};

}  // namespace ddl_tensorflow
