// The types of the MPItrampoline ABI, and their way to and from those of the MPI below.
//
// The ABI is a convention: a program that was linked to MPItrampoline finds every function MPI_X
// under the name MPIABI_X in a library that it loads, and every constant as a variable.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace ddl_jax::abi {

// A handle of any kind. MPI's own is the beginning of it.
using Handle = std::uintptr_t;
using Constant = std::intptr_t;

template <class T>
Constant constant(T value) {
  return (Constant)value;  // NOLINT: an integer or a pointer
}

template <class T>
T value(Handle handle) {
  static_assert(sizeof(T) <= sizeof(Handle));
  T mpi;
  std::memcpy(&mpi, &handle, sizeof mpi);  // both platforms begin with the low bytes
  return mpi;
}

template <class T>
Handle handle(T mpi) {
  return (Handle)(Constant)mpi;  // NOLINT: extended by the sign, as the constants are
}

// A handle that MPI reads, writes, or both.
template <class T>
class Out {
 public:
  explicit Out(Handle* place) : place_(place) {
    if (place != nullptr) mpi_ = value<T>(*place);
  }
  ~Out() {
    if (place_ != nullptr) *place_ = handle(mpi_);
  }
  Out(const Out&) = delete;
  Out& operator=(const Out&) = delete;
  operator T*() { return place_ == nullptr ? nullptr : &mpi_; }  // NOLINT: converts on purpose

 private:
  Handle* place_;
  T mpi_{};
};

// As many handles; written back where they may be.
template <class T>
class Handles {
 public:
  Handles(Handle* places, int count) : Handles(static_cast<const Handle*>(places), count) {
    writable_ = places;
  }
  Handles(const Handle* places, int count) {
    for (int i = 0; places != nullptr && i < count; ++i) mpi_.push_back(value<T>(places[i]));
  }
  ~Handles() {
    for (std::size_t i = 0; writable_ != nullptr && i < mpi_.size(); ++i) {
      writable_[i] = handle(mpi_[i]);
    }
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  operator T*() { return mpi_.data(); }  // NOLINT: converts on purpose

 private:
  Handle* writable_ = nullptr;
  std::vector<T> mpi_;
};

// The ABI's status: room for any MPI's own, then the three fields that programs read.
struct Status {
  alignas(8) unsigned char own[24];
  int source;
  int tag;
  int error;
};
static_assert(sizeof(Status) == 40 && sizeof(MPI_Status) <= sizeof(Status::own));

inline void write(Status& status, const MPI_Status& mpi) {
  std::memcpy(status.own, &mpi, sizeof mpi);
  status.source = mpi.MPI_SOURCE;
  status.tag = mpi.MPI_TAG;
  status.error = mpi.MPI_ERROR;
}

// As many statuses that MPI reads, writes, or both; or one of the constants to ignore them.
class Statuses {
 public:
  Statuses(Status* places, int count) : places_(places) {
    const auto* const as_mpi = reinterpret_cast<MPI_Status*>(places);
    is_ignored_ = as_mpi == MPI_STATUS_IGNORE || as_mpi == MPI_STATUSES_IGNORE;
    if (is_ignored_) return;
    mpi_.resize(count < 0 ? 0 : count);
    for (std::size_t i = 0; i < mpi_.size(); ++i) {
      std::memcpy(&mpi_[i], places[i].own, sizeof mpi_[i]);
    }
  }
  ~Statuses() {
    for (std::size_t i = 0; i < mpi_.size(); ++i) write(places_[i], mpi_[i]);
  }
  Statuses(const Statuses&) = delete;
  Statuses& operator=(const Statuses&) = delete;
  operator MPI_Status*() {  // NOLINT: converts on purpose
    return is_ignored_ ? reinterpret_cast<MPI_Status*>(places_) : mpi_.data();
  }

 private:
  Status* places_;
  bool is_ignored_ = false;
  std::vector<MPI_Status> mpi_;
};

// Says that a function is not carried, and gives the code that its caller gets.
int refuse(const char* function);

}  // namespace ddl_jax::abi
