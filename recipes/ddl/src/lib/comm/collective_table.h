// The table of collectives. The C interface, the asynchronous calls, the schedules and the GPUs are
// driven by it, so that a new collective is a row and the functions that the row names.
#pragma once

#include <cstddef>
#include <string>

#include "base/arguments.h"
#include "base/call.h"
#include "schedule/plan.h"

namespace ddl {

class Comm;
class DeviceGroup;

// The unit of `count`. Collectives without a count move what their lists say, or nothing.
enum class Unit { kNothing, kBytes, kElements };

// The number of blocks, of `count` each, in a buffer.
enum class Blocks { kNone, kOne, kPerRank, kListed };

// The ranks whose buffer is used.
enum class Users { kAll, kRoot, kAllButRoot };

// One buffer of a collective, `send` or `recv`.
struct Side {
  Blocks blocks = Blocks::kNone;
  Users users = Users::kAll;
};

// All functions but `check` are called after the ranks have agreed on the call.
struct Row {
  Collective collective = Collective::kNone;
  const char* name = "";
  const char* async_name = nullptr;  // null: it exists blocking only
  Unit unit = Unit::kNothing;
  bool has_root = false;
  bool can_fuse = false;  // asynchronous calls of it may travel together
  Side send;
  Side recv;

  // Throws DDL_ERROR_ARGUMENT with the name of `function` and of the argument.
  void (*check)(const char* function, const Comm& comm, const Arguments& args) = nullptr;
  // Move the data in host memory, if there is any. Null: nothing moves.
  void (*on_host)(Comm& comm, const Arguments& args) = nullptr;
  void (*between_hosts)(Comm& comm, const Arguments& args) = nullptr;
  // The operation of one host's GPUs, where all buffers are on GPUs. Null: buffers may be anywhere,
  // and those on a GPU are copied to host memory and back.
  void (DeviceGroup::*on_device)(const Arguments& args) = nullptr;
  // A host's part in moving a slice between hosts. Null: between_hosts follows no plan.
  Plan (*plan)(const PlanInput& input) = nullptr;
  // Agrees and moves at once, where that is faster; false where it is not, and nothing is done.
  bool (*at_once)(Comm& comm, const Call& call, const Arguments& args) = nullptr;

  // Bytes of one of `count`.
  std::size_t width(DDL_Type type) const { return unit == Unit::kElements ? size_of(type) : 1; }
};

#define DDL_COLLECTIVE(Name) extern const Row k##Name##Row;
#include "base/collectives.def"
#undef DDL_COLLECTIVE

// An unknown collective has a row without functions.
const Row& row_of(Collective collective);

// The row of a collective that programs may call, by its name. Throws DDL_ERROR_ARGUMENT.
const Row& find_row(const std::string& name);

// The call with its arguments, for messages: "allreduce(8 x float32, sum)".
std::string describe(const Call& call);

// The bytes that the call moves or reduces in all: its schedule is chosen by them.
std::size_t bytes_of(const Call& call, int ranks);

}  // namespace ddl
