// To preload: makes the n-th call that can fail fail, of operator new and of MPI's functions that
// libddl uses while data moves. No mpi.h: the types are those of MPICH's ABI.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

constexpr int kOther = 15;  // MPI_ERR_OTHER

std::atomic<bool> g_is_armed{false};
std::atomic<bool> g_lasts{false};
std::atomic<long> g_left{0};
std::atomic<long> g_failed{0};

bool fails() {
  if (!g_is_armed) return false;
  const long left = g_left.fetch_sub(1);
  if (left > 0 || (left < 0 && !g_lasts)) return false;
  ++g_failed;
  return true;
}

void* allocate(std::size_t nbytes) {
  void* memory = fails() ? nullptr : std::malloc(nbytes == 0 ? 1 : nbytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// MPICH is not in the global scope, but loaded.
template <class Function>
Function mpis(const char* name) {
  void* library = dlopen("libmpi.so.12", RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

extern "C" {

// The call with this number, from 0, fails; all later ones too if it `lasts`.
void fault_arm(long number, int lasts) {
  g_left = number;
  g_lasts = lasts != 0;
  g_failed = 0;
  g_is_armed = true;
}

// The result is how many have failed.
long fault_disarm() {
  g_is_armed = false;
  return g_failed;
}

int MPI_Isend(const void* buffer, int count, int type, int rank, int tag, int comm, int* request) {
  static const auto isend = mpis<decltype(&MPI_Isend)>("PMPI_Isend");
  return fails() ? kOther : isend(buffer, count, type, rank, tag, comm, request);
}

int MPI_Irecv(void* buffer, int count, int type, int rank, int tag, int comm, int* request) {
  static const auto irecv = mpis<decltype(&MPI_Irecv)>("PMPI_Irecv");
  return fails() ? kOther : irecv(buffer, count, type, rank, tag, comm, request);
}

}  // extern "C"

void* operator new(std::size_t nbytes) { return allocate(nbytes); }
void* operator new[](std::size_t nbytes) { return allocate(nbytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
