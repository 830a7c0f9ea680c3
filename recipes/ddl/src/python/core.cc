// The C interface for Python: addresses as integers, results as codes. Arguments are checked by
// ddl/_buffers.py; every function that can wait gives the interpreter lock away.
#include <ddl/ddl.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/bindings.h"
#include "place_bindings.h"
#include "schedule_bindings.h"
#include "settings_bindings.h"

namespace nb = nanobind;

namespace {

using Address = std::uintptr_t;

ddl_comm_t comm_at(Address address) { return reinterpret_cast<ddl_comm_t>(address); }
void* memory_at(Address address) { return reinterpret_cast<void*>(address); }

using Sizes = std::vector<std::size_t>;

// The offsets of blocks that follow each other.
Sizes offsets_of(const Sizes& sizes) {
  Sizes offsets(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), offsets.begin(), std::size_t{0});
  return offsets;
}

// Calls a getter; returns (code, value).
template <DDL_Result (*get)(int*)>
std::pair<int, int> get_int() {
  int value = 0;
  const DDL_Result code = get(&value);
  return {code, value};
}

// An asynchronous operation and its outcome. The object keeps the outcome, so that an exception
// that Python raises between two steps cannot lose it. It serves one thread at a time.
class Request {
 public:
  explicit Request(ddl_request_t request) : request_(request) {}

  bool test() {
    return conclude(
        [](ddl_request_t* request, int* is_done) { return ddl_test(request, is_done); });
  }
  bool wait_for(double seconds) {
    return conclude([&](ddl_request_t* request, int* is_done) {
      return ddl_wait_for(request, seconds, is_done);
    });
  }
  int code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  template <class Ask>
  bool conclude(const Ask& ask) {
    if (request_ == DDL_REQUEST_NULL) return true;
    int is_done = 0;
    const DDL_Result code = ask(&request_, &is_done);
    if (is_done == 0) return false;
    code_ = code;
    if (code != DDL_SUCCESS) message_ = ddl_last_error();
    return true;
  }

  ddl_request_t request_;
  int code_ = DDL_SUCCESS;
  std::string message_;
};

using Unlocked = nb::call_guard<nb::gil_scoped_release>;

}  // namespace

NB_MODULE(_core, m) {
  m.def("version", [] { return std::string(ddl_version()); });
  m.def("mpi_library", [] { return std::string(ddl_mpi_library()); });
  m.def("cuda_library", [] { return std::string(ddl_cuda_library()); });
  m.def("set_stream", [](Address stream) -> int { return ddl_set_stream(memory_at(stream)); });
  m.def("last_error", [] { return std::string(ddl_last_error()); });
  m.def("initialized", [] { return ddl_initialized() != 0; });
  m.def("is_forked", [] { return ddl_is_forked() != 0; });
  m.def(
      "init",
      [](const std::optional<std::string>& options) -> int {
        return ddl_init(options ? options->c_str() : nullptr);
      },
      nb::arg("options").none(), Unlocked());
  m.def(
      "finalize", []() -> int { return ddl_finalize(); }, Unlocked());
  m.def("abort", [](int code, const std::string& reason) { ddl_abort(code, reason.c_str()); });

  m.def("rank", get_int<ddl_rank>);
  m.def("size", get_int<ddl_size>);
  m.def("local_rank", get_int<ddl_local_rank>);
  m.def("local_size", get_int<ddl_local_size>);
  m.def("num_hosts", get_int<ddl_num_hosts>);
  m.def("host_index", get_int<ddl_host_index>);
  m.def("host_name", [](int rank) -> std::pair<int, std::string> {
    const char* name = "";
    const DDL_Result code = ddl_host_name(rank, &name);
    return {code, name};
  });
  m.def("set_timeout", [](double seconds) -> int { return ddl_set_timeout(seconds); });
  m.def("get_timeout", [] {
    double seconds = 0;
    ddl_get_timeout(&seconds);
    return seconds;
  });

  m.def(
      "comm_create",
      [](const std::vector<int>& ranks, int tag) -> std::pair<int, Address> {
        ddl_comm_t comm = nullptr;
        const DDL_Result code =
            ddl_comm_create(ranks.data(), static_cast<int>(ranks.size()), tag, &comm);
        return {code, reinterpret_cast<Address>(comm)};
      },
      Unlocked());
  m.def(
      "comm_free", [](Address comm) -> int { return ddl_comm_free(comm_at(comm)); }, Unlocked());

  m.def(
      "run",
      [](const char* name, Address comm, Address send, Address recv, std::size_t count, int type,
         int op, int root) -> int {
        return ddl_run_by_name(name, comm_at(comm), memory_at(send), memory_at(recv), count,
                               static_cast<DDL_Type>(type), static_cast<DDL_Op>(op), root);
      },
      Unlocked());
  m.def(
      "alltoallv",
      [](Address comm, Address send, const Sizes& send_bytes, Address recv,
         const Sizes& recv_bytes) -> int {
        return ddl_comm_alltoallv(comm_at(comm), memory_at(send), send_bytes.data(),
                                  offsets_of(send_bytes).data(), memory_at(recv), recv_bytes.data(),
                                  offsets_of(recv_bytes).data());
      },
      Unlocked());
  m.def(
      "send",
      [](Address comm, Address buffer, std::size_t nbytes, int dest, int tag) -> int {
        return ddl_comm_send(comm_at(comm), memory_at(buffer), nbytes, dest, tag);
      },
      Unlocked());
  m.def(
      "recv",
      [](Address comm, Address buffer, std::size_t nbytes, int source, int tag) -> int {
        return ddl_comm_recv(comm_at(comm), memory_at(buffer), nbytes, source, tag);
      },
      Unlocked());
  nb::class_<Request>(m, "Request")
      .def("test", &Request::test)
      .def("wait_for", &Request::wait_for, Unlocked())
      .def_prop_ro("code", &Request::code)
      .def_prop_ro("message", &Request::message);
  m.def("start",
        [](const char* name, Address comm, Address send, Address recv, std::size_t count, int type,
           int op, int root) -> std::pair<int, Request> {
          ddl_request_t request = DDL_REQUEST_NULL;
          const DDL_Result code = ddl_start_by_name(
              name, comm_at(comm), memory_at(send), memory_at(recv), count,
              static_cast<DDL_Type>(type), static_cast<DDL_Op>(op), root, &request);
          return {code, Request(request)};
        });
  m.def("stats", [](Address comm) -> std::pair<int, std::vector<std::uint64_t>> {
    ddl_stats stats{};
    const DDL_Result code = ddl_comm_stats(comm_at(comm), &stats, sizeof(stats));
    return {code, {stats.collectives, stats.requests, stats.fused_requests, stats.fused_messages}};
  });

  bind_schedules(m);
  bind_settings(m);
  bind_places(m);
}
