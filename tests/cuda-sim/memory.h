// Memory of the devices and pinned memory of the host, and who has used which part of it.
//
// Each block is mapped twice. The program's mapping is closed to it as long as the program may not
// look: always for memory of a device, and for pinned memory while an operation of a stream uses it
// that the program has not waited for. Operations use the other mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "order.h"

namespace sim {

enum class Kind { kDevice, kPinned };

struct Range {
  const void* begin;
  std::size_t nbytes;
  bool is_write;
};

// One use of a range by an operation of a stream.
struct Use {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool is_write;
  std::string who;  // the operation and its stream
  std::size_t actor;
  std::uint64_t step = 0;  // 0: it has not begun
};

struct Block {
  std::uintptr_t begin;
  std::size_t nbytes;
  std::size_t mapped;
  Kind kind;
  int device;
  std::byte* alias;  // where operations find it
  int open;          // the program's protection, of mmap
  std::vector<std::shared_ptr<Use>> uses;
};

// All functions are called with the machine's lock held (stream.h).

// Null: there is no such memory left.
void* allocate(Kind kind, int device, std::size_t nbytes);
// Ends the process where an operation uses it that the program has not waited for. False: there is
// no such block.
bool release(void* pointer, Kind kind, const Clock& program);
std::size_t bytes_in_use(int device);

// The block that the pointer leads into; null for memory that is not CUDA's.
Block* find(const void* pointer);
// The same byte where operations find it.
std::byte* alias_of(const void* pointer);

// An operation that is given to a stream: it will use the range.
std::vector<std::shared_ptr<Use>> announce_uses(const std::vector<Range>& ranges,
                                                const std::string& who, std::size_t actor);
// It begins; ends the process where another stream's use of a range has no order with it.
void begin_uses(const std::vector<std::shared_ptr<Use>>& uses, const Clock& clock,
                std::uint64_t step);
// The program has waited for more: it may look again.
void open_to(const Clock& program);

}  // namespace sim
