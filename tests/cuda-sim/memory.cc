#include "memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "settings.h"
#include "stream.h"

namespace sim {
namespace {

struct Memory {
  std::map<std::uintptr_t, Block> blocks;
  std::map<int, std::size_t> in_use;
  std::uint64_t allocations = 0;
};

Memory& memory() {
  static auto* const all = new Memory;  // other threads may use it until the process ends
  return *all;
}

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool overlaps(const Use& a, const Use& b) { return a.begin < b.end && b.begin < a.end; }

std::string place(const Use& use) {
  const Block* block = find(reinterpret_cast<void*>(use.begin));
  const bool is_device = block != nullptr && block->kind == Kind::kDevice;
  return std::to_string(use.end - use.begin) + " bytes of " +
         (is_device ? "GPU " + std::to_string(block->device) : std::string("pinned memory"));
}

bool is_ordered(const Use& use, const Clock& clock) {
  return use.step != 0 && clock.has_seen(use.actor, use.step);
}

void protect(Block& block, int wanted) {
  if (block.open == wanted) return;
  if (mprotect(reinterpret_cast<void*>(block.begin), block.mapped, wanted) != 0) {
    die("mprotect failed");
  }
  block.open = wanted;
}

// Closes pinned memory as its unordered uses demand, and forgets those that no one can race with.
void settle(Block& block, const Clock& program) {
  if (block.kind != Kind::kPinned) return;
  int wanted = PROT_READ | PROT_WRITE;
  for (const auto& use : block.uses) {
    if (is_ordered(*use, program)) continue;
    wanted &= use->is_write ? PROT_NONE : PROT_READ;
  }
  protect(block, wanted);
}

bool is_write_fault(const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWrite = 2;  // of the page fault's error code
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrite) != 0;
#else
  static_cast<void>(context);
  return true;
#endif
}

struct sigaction before;

// The program has touched a closed page.
void on_fault(int, siginfo_t* info, void* context) {
  std::unique_lock<std::mutex> lock(machine().mutex);
  Block* block = find(info->si_addr);
  if (block == nullptr) {
    lock.unlock();
    sigaction(SIGSEGV, &before, nullptr);  // and it comes again
    return;
  }
  const bool is_write = is_write_fault(context);
  const std::string what = is_write ? "the program writes to " : "the program reads ";
  if (block->kind == Kind::kDevice) {
    die(what + "memory of GPU " + std::to_string(block->device) + " by itself");
  }
  const Use mine{address(info->si_addr), address(info->si_addr) + 1, is_write, "", 0, 0};
  for (const auto& use : block->uses) {
    if (is_ordered(*use, machine().program) || !(is_write || use->is_write)) continue;
    if (overlaps(*use, mine)) {
      die(what + place(*use) + " that " + use->who + (use->is_write ? " writes" : " reads") +
          ", without having waited for it");
    }
  }
  protect(*block, PROT_READ | PROT_WRITE);  // another part of the page
}

void catch_faults() {
  static std::once_flag done;
  std::call_once(done, [] {
    struct sigaction mine {};
    mine.sa_sigaction = on_fault;
    mine.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &mine, &before);
  });
}

}  // namespace

void* allocate(Kind kind, int device, std::size_t nbytes) {
  catch_faults();
  Memory& all = memory();
  const Fault& fault = settings().fault;
  if (fault.kind == "memory" && ++all.allocations >= fault.at) return nullptr;
  if (kind == Kind::kDevice && all.in_use[device] + nbytes > settings().memory) return nullptr;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t mapped = (nbytes + page - 1) / page * page;
  const int file = memfd_create("cudasim", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(mapped)) != 0) die("memfd_create failed");
  const int open = kind == Kind::kDevice ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* program = mmap(nullptr, mapped, open, MAP_SHARED, file, 0);
  void* alias = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (program == MAP_FAILED || alias == MAP_FAILED) die("mmap failed");
  // What nobody has written is not zero on a GPU either.
  std::memset(alias, 0xa5, mapped);
  if (kind == Kind::kDevice) all.in_use[device] += nbytes;
  all.blocks[address(program)] = {
      address(program), nbytes, mapped, kind, device, static_cast<std::byte*>(alias), open, {}};
  return program;
}

bool release(void* pointer, Kind kind, const Clock& program) {
  Memory& all = memory();
  const auto found = all.blocks.find(address(pointer));
  if (found == all.blocks.end() || found->second.kind != kind) return false;
  Block& block = found->second;
  for (const auto& use : block.uses) {
    if (!is_ordered(*use, program)) {
      die("the program frees " + place(*use) + " that " + use->who +
          " uses, without having waited for it");
    }
  }
  if (kind == Kind::kDevice) all.in_use[block.device] -= block.nbytes;
  munmap(pointer, block.mapped);
  munmap(block.alias, block.mapped);
  all.blocks.erase(found);
  return true;
}

std::size_t bytes_in_use(int device) { return memory().in_use[device]; }

Block* find(const void* pointer) {
  auto& blocks = memory().blocks;
  auto after = blocks.upper_bound(address(pointer));
  if (after == blocks.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return address(pointer) < block.begin + block.mapped ? &block : nullptr;
}

std::byte* alias_of(const void* pointer) {
  const Block* block = find(pointer);
  if (block == nullptr) return static_cast<std::byte*>(const_cast<void*>(pointer));
  return block->alias + (address(pointer) - block->begin);
}

std::vector<std::shared_ptr<Use>> announce_uses(const std::vector<Range>& ranges,
                                                const std::string& who, std::size_t actor) {
  std::vector<std::shared_ptr<Use>> uses;
  for (const Range& range : ranges) {
    Block* block = find(range.begin);
    if (block == nullptr || range.nbytes == 0) continue;
    const std::uintptr_t begin = address(range.begin);
    if (begin + range.nbytes > block->begin + block->nbytes) {
      die(who + " goes " + std::to_string(begin + range.nbytes - block->begin - block->nbytes) +
          " bytes beyond the end of its memory");
    }
    uses.push_back(
        std::make_shared<Use>(Use{begin, begin + range.nbytes, range.is_write, who, actor, 0}));
    block->uses.push_back(uses.back());
    settle(*block, machine().program);
  }
  return uses;
}

void begin_uses(const std::vector<std::shared_ptr<Use>>& uses, const Clock& clock,
                std::uint64_t step) {
  for (const auto& use : uses) use->step = step;
  for (const auto& use : uses) {
    Block* block = find(reinterpret_cast<void*>(use->begin));
    if (block == nullptr) continue;
    for (const auto& other : block->uses) {
      const bool conflicts = use->is_write || other->is_write;
      if (other->step == 0 || other->actor == use->actor || !conflicts) continue;
      if (!overlaps(*use, *other) || is_ordered(*other, clock)) continue;
      die("a race for " + place(*use) + ": " + use->who + (use->is_write ? " writes" : " reads") +
          ", and " + other->who + (other->is_write ? " writes" : " reads") +
          ", with no order between them");
    }
    // Whoever has an order with this one has it with those that it covers.
    const auto covered = [&](const std::shared_ptr<Use>& other) {
      return other != use && other->step != 0 && is_ordered(*other, clock) &&
             (use->is_write || !other->is_write) && use->begin <= other->begin &&
             other->end <= use->end;
    };
    auto& all = block->uses;
    all.erase(std::remove_if(all.begin(), all.end(), covered), all.end());
  }
}

void open_to(const Clock& program) {
  for (auto& [begin, block] : memory().blocks) settle(block, program);
}

}  // namespace sim
