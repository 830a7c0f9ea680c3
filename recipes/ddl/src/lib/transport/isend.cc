#include "transport/isend.h"

#include <climits>
#include <mutex>

#include "transport/mpi_error.h"

namespace ddl {
namespace {

#ifdef MPIX_ERR_EAGAIN

MPI_T_cvar_handle variable(const char* name, int* value) {
  int index = 0;
  int count = 0;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) {
    return MPI_T_CVAR_HANDLE_NULL;
  }
  const bool is_read = count == 1 && MPI_T_cvar_read(handle, value) == MPI_SUCCESS;
  return is_read ? handle : MPI_T_CVAR_HANDLE_NULL;
}

// MPICH's control variable for how often it tries before it says MPIX_ERR_EAGAIN. It is the whole
// process's, and others who use MPI count on it as it was: it is ours only during a call. A full
// network lets a message in long before so many tries, with which MPICH makes progress, are over.
class Tries {
 public:
  static Tries& instance() {
    static Tries tries;
    return tries;
  }

  // Longer messages begin with a handshake, which MPICH would not take back.
  bool can_limit(int nbytes) const { return handle_ != MPI_T_CVAR_HANDLE_NULL && nbytes <= most_; }

  template <class Call>
  int limited(const Call& call) {
    // Else another thread could set the variable back in the middle of our call.
    const std::lock_guard<std::mutex> lock(mutex_);
    constexpr int kTries = 1000;
    MPI_T_cvar_write(handle_, &kTries);
    const int code = call();
    MPI_T_cvar_write(handle_, &usual_);
    return code;
  }

 private:
  Tries() {
    int provided = 0;
    if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return;
    int eager = -1;
    variable("MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD", &eager);
    if (eager >= 0) most_ = eager;
    handle_ = variable("MPIR_CVAR_CH4_OFI_MAX_EAGAIN_RETRY", &usual_);
    // Writing may be refused.
    if (handle_ != MPI_T_CVAR_HANDLE_NULL && MPI_T_cvar_write(handle_, &usual_) != MPI_SUCCESS) {
      handle_ = MPI_T_CVAR_HANDLE_NULL;
    }
  }

  std::mutex mutex_;
  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
  int usual_ = 0;
  int most_ = INT_MAX;
};

#endif

}  // namespace

void prepare_isend([[maybe_unused]] MPI_Comm comm) {
#ifdef MPIX_ERR_EAGAIN
  // MPICH before 4.1 wants to be told for each communicator, too.
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  MPI_Info_set(info, "eagain", "true");
  MPI_Comm_set_info(comm, info);
  MPI_Info_free(&info);
#endif
}

bool try_isend(const void* buffer, int nbytes, int rank, int tag, MPI_Comm comm,
               MPI_Request* request) {
  const auto isend = [&] { return MPI_Isend(buffer, nbytes, MPI_BYTE, rank, tag, comm, request); };
#ifdef MPIX_ERR_EAGAIN
  if (Tries::instance().can_limit(nbytes)) {
    const int code = Tries::instance().limited(isend);
    if (code != MPI_SUCCESS) {
      int error_class = MPI_SUCCESS;
      MPI_Error_class(code, &error_class);
      if (error_class == MPIX_ERR_EAGAIN) return false;
    }
    check_mpi(code, "MPI_Isend");
    return true;
  }
#endif
  check_mpi(isend(), "MPI_Isend");
  return true;
}

}  // namespace ddl
