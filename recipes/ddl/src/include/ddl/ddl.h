/* DDL-CE: collectives that know the topology, over MPI and shared memory. The stable C interface.
 *
 * Every function returns a DDL_Result. When it is not DDL_SUCCESS, ddl_last_error() gives one full
 * sentence: what was wrong, on which rank and host, and what to do.
 *
 * A collective is called by all ranks of the communicator in the same order. It is blocking unless
 * it is one of those that give a request.
 * Calls that differ between ranks (another collective, count, type, operation or root) return
 * DDL_ERROR_MISMATCH on every rank, and the communicator stays usable. A rank that dies or does not
 * arrive within the timeout (60 s; `-timeout S` or DDL_TIMEOUT) gives DDL_ERROR_PEER_LOST or
 * DDL_ERROR_TIMEOUT on the ranks that wait for it; after that the communicator answers every call
 * with the same error.
 *
 * Threads: one communicator serves one call at a time (a second thread waits its turn); different
 * communicators are independent. Results are deterministic: the order of summation depends on the
 * topology and size alone, and all ranks get the same bits. With `-deterministic 1` it is the order
 * of ranks, whatever the topology: the same bits for the same number of ranks anywhere, at the
 * price of more bytes between hosts.
 */
#ifndef DDL_DDL_H
#define DDL_DDL_H

#include <stddef.h>
#include <stdint.h>

#define DDL_VERSION_MAJOR 0
#define DDL_VERSION_MINOR 1
#define DDL_VERSION_PATCH 0

#if defined(__GNUC__)
#define DDL_API __attribute__((visibility("default")))
#else
#define DDL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  DDL_SUCCESS = 0,
  DDL_ERROR_NOT_INITIALIZED = 1, /* ddl_init has not run, or ddl_finalize has */
  DDL_ERROR_ARGUMENT = 2,        /* a bad argument or option; nothing was communicated */
  DDL_ERROR_MISMATCH = 3,        /* the ranks did not make the same call */
  DDL_ERROR_TIMEOUT = 4,         /* a rank did not arrive in time */
  DDL_ERROR_PEER_LOST = 5,       /* a rank died, or gave up before us */
  DDL_ERROR_MPI = 6,             /* MPI reported an error */
  DDL_ERROR_SYSTEM = 7,          /* the operating system refused (memory, shared memory) */
  DDL_ERROR_DEVICE = 8           /* CUDA or NCCL reported an error */
} DDL_Result;

/* Element types. The values are part of the ABI. */
typedef enum {
  DDL_TYPE_FLOAT = 0,  /* IEEE binary32 */
  DDL_TYPE_DOUBLE = 1, /* IEEE binary64 */
  /* 16-bit floats are accumulated in binary32 and rounded once per level of the topology. The
   * levels are the sockets of a host, where many ranks are on several, the host, and those between
   * hosts (racks, ...). */
  DDL_TYPE_HALF = 2,     /* IEEE binary16 */
  DDL_TYPE_BFLOAT16 = 3, /* bfloat16 */
  DDL_TYPE_INT32 = 4,
  DDL_TYPE_INT64 = 5
} DDL_Type;

/* Reductions. MIN and MAX pass a NaN on; integer SUM and PRODUCT wrap around. */
typedef enum {
  DDL_OP_SUM = 0,
  DDL_OP_PRODUCT = 1,
  DDL_OP_MIN = 2,
  DDL_OP_MAX = 3,
  DDL_OP_AVERAGE = 4 /* the sum divided by the number of ranks; refused for integers */
} DDL_Op;

/* A communicator: an ordered set of ranks. NULL means all ranks. */
typedef struct ddl_comm* ddl_comm_t;
#define DDL_COMM_WORLD ((ddl_comm_t)0)

/* -- Life -------------------------------------------------------------------------------------- */

/* Starts the library, and MPI unless the program has done so. Collective over all ranks. `options`
 * as in DDL_OPTIONS, whose value is used when `options` is NULL. A second call changes nothing.
 * Fails on all ranks when one has wrong options or another mode, or does not come within the
 * timeout; but MPI's own start and end wait without one, and the library then says so on stderr.
 * A program that has started MPI has no receive of any tag posted on MPI_COMM_WORLD meanwhile. */
DDL_API DDL_Result ddl_init(const char* options);

/* Ends the library, and MPI if ddl_init started it. Collective over all ranks, and checked like any
 * collective: ranks still in another call get DDL_ERROR_MISMATCH. Frees every communicator. */
DDL_API DDL_Result ddl_finalize(void);

/* 1 between ddl_init and ddl_finalize, else 0. */
DDL_API int ddl_initialized(void);

/* Ends the whole job at once: prints `reason` with rank and host on stderr, then exits with
 * `exit_code` (under ddlrun, which ends the others) or calls MPI_Abort with it. For a rank that
 * cannot go on while others wait for it. Does not return. */
DDL_API void ddl_abort(int exit_code, const char* reason);

/* The sentence for this thread's latest error ("" before any). Valid until its next error. */
DDL_API const char* ddl_last_error(void);

/* "0.1.0", and the MPI library's own description. Both functions may be called at any time. */
DDL_API const char* ddl_version(void);
DDL_API const char* ddl_mpi_library(void);

/* -- GPUs: the CUDA variant of the library ------------------------------------------------------
 *
 * Every collective, send and receive takes buffers in the memory of a CUDA GPU where it takes host
 * memory. A communicator uses one GPU on each rank, that of its first buffer. Buffers of an
 * allreduce, reduce, reduce_scatter, broadcast or allgather are on GPUs on all ranks, or on none,
 * else it is DDL_ERROR_MISMATCH; the other calls do not mind.
 *
 * A call begins after the work that has been given to the thread's stream so far, and when it (or
 * its request) is done, the result is in place for every stream. While that stream is captured into
 * a CUDA graph, a call is refused (DDL_ERROR_ARGUMENT).
 *
 * Sums inside a host are NCCL's: it decides on their order, 16-bit floats are rounded at every
 * addition, MIN and MAX need not pass a NaN on, and an average multiplies each input by 1/size
 * first. NCCL cannot be used when ranks share a GPU, and is not with `-deterministic 1`. The data
 * then goes through host memory, and the sums are those of host buffers. `-dev_sync 1` or `2` lets
 * every call wait for all that the GPU does, not for one stream only. It helps to find missing
 * order. */

/* "CUDA 12.9, NCCL 2.32.3": the versions that the library was built with. "" in the CPU variant. */
DDL_API const char* ddl_cuda_library(void);

/* Calls of this thread begin after the work in `stream` from now on (a cudaStream_t; at first NULL,
 * CUDA's default stream). */
DDL_API DDL_Result ddl_set_stream(void* stream);

/* -- Where am I? All need ddl_init. ------------------------------------------------------------ */

DDL_API DDL_Result ddl_rank(int* rank);             /* 0 .. size-1 */
DDL_API DDL_Result ddl_size(int* size);             /* all ranks of the job */
DDL_API DDL_Result ddl_local_rank(int* local_rank); /* 0 .. local_size-1 on this host */
DDL_API DDL_Result ddl_local_size(int* local_size); /* ranks on this host */
DDL_API DDL_Result ddl_num_hosts(int* num_hosts);
DDL_API DDL_Result ddl_host_index(int* host_index);        /* hosts count by their lowest rank */
DDL_API DDL_Result ddl_host_of(int rank, int* host_index); /* of any rank */
DDL_API DDL_Result ddl_host_name(int rank, const char** name); /* valid until ddl_finalize */

/* The timeout of every wait, in seconds (> 0). */
DDL_API DDL_Result ddl_set_timeout(double seconds);
DDL_API DDL_Result ddl_get_timeout(double* seconds);
/* Another one for the waits of the calling thread, while `seconds` is not NULL. The number is read
 * again and again, and so may be written (atomically) while a call runs, to let it wait longer.
 * Below 0 ends the call at once with DDL_ERROR_TIMEOUT. */
DDL_API DDL_Result ddl_use_timeout(const double* seconds);

/* -- Communicators ----------------------------------------------------------------------------- */

/* Makes a communicator of the `n` ranks in `world_ranks`, in that order. Called by these ranks
 * only, with the same list; `tag` (0 .. 32767) tells apart groups made at the same time. Fails on
 * all when one has another list; and when one does not come within the timeout, after which
 * DDL_COMM_WORLD is unusable, too. */
DDL_API DDL_Result ddl_comm_create(const int* world_ranks, int n, int tag, ddl_comm_t* comm);
/* The tags of frameworks' own groups, which several of them may make at the same time in one
 * process. Those of programs are below. */
enum {
  DDL_TAGS_OF_PROGRAMS = 24576, /* from 0 on, and of PyTorch's groups, by a hash of their names */
  DDL_TAG_JAX_GROUPS = 24576,   /* 8000, by the first rank of the group */
  DDL_TAG_JAX_PROGRAM = 32576,  /* of XLA's groups of one program */
  DDL_TAG_JAX_CALLS = 32577,    /* of the functions in ddl.jax */
  DDL_TAG_TENSORFLOW = 32578,
  DDL_TAG_HOROVOD = 32765 /* 3, one for each of its frameworks */
};
DDL_API DDL_Result ddl_comm_free(ddl_comm_t comm); /* called by all its ranks; NULL is an error */
DDL_API DDL_Result ddl_comm_rank(ddl_comm_t comm, int* rank);
DDL_API DDL_Result ddl_comm_size(ddl_comm_t comm, int* size);

/* -- Collectives. In place when send == recv; else the two must not overlap. ------------------- */

/* recv[i] = op over all ranks of send[i]; `count` elements. */
DDL_API DDL_Result ddl_comm_allreduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                                      DDL_Type type, DDL_Op op);

/* As ddl_comm_allreduce, but only rank `root` has the result. `recv` of the others is ignored, and
 * may be NULL. */
DDL_API DDL_Result ddl_comm_reduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                                   DDL_Type type, DDL_Op op, int root);

/* The n-th block of `recv_count` elements of the reduced `send` (size * recv_count elements) goes
 * to rank n. In place: `recv` is this rank's block inside `send`. */
DDL_API DDL_Result ddl_comm_reduce_scatter(ddl_comm_t comm, const void* send, void* recv,
                                           size_t recv_count, DDL_Type type, DDL_Op op);

/* `nbytes` of rank `root` to all. */
DDL_API DDL_Result ddl_comm_broadcast(ddl_comm_t comm, void* buffer, size_t nbytes, int root);

/* Block n of `recv` (size * nbytes) = `send` (nbytes) of rank n. In place: `send` is this rank's
 * block inside `recv`. */
DDL_API DDL_Result ddl_comm_allgather(ddl_comm_t comm, const void* send, void* recv, size_t nbytes);

DDL_API DDL_Result ddl_comm_barrier(ddl_comm_t comm);

/* Every rank's `nbytes` to `root`, and back. The root's big side holds size * nbytes; the big side
 * is ignored elsewhere. */
DDL_API DDL_Result ddl_comm_gather(ddl_comm_t comm, const void* send, void* recv, size_t nbytes,
                                   int root);
DDL_API DDL_Result ddl_comm_scatter(ddl_comm_t comm, const void* send, void* recv, size_t nbytes,
                                    int root);

/* Block n of `send` to rank n. All counts and offsets are in bytes, one per rank. Rank b must
 * receive as many from a as a sends to b: if not, all are told before anything moves. No in place.
 */
DDL_API DDL_Result ddl_comm_alltoall(ddl_comm_t comm, const void* send, void* recv, size_t nbytes);
DDL_API DDL_Result ddl_comm_alltoallv(ddl_comm_t comm, const void* send, const size_t* send_bytes,
                                      const size_t* send_offsets, void* recv,
                                      const size_t* recv_bytes, const size_t* recv_offsets);

/* Point to point, blocking; a receive must ask for exactly the bytes sent. `tag` is 0 .. 2^31 - 1.
 * MPI itself carries all but the last tags (with MPICH the first 2^29, about). A message with one
 * of the last tags must be shorter than 1 GiB, and is copied once more on both sides. */
DDL_API DDL_Result ddl_comm_send(ddl_comm_t comm, const void* buffer, size_t nbytes, int dest,
                                 int tag);
DDL_API DDL_Result ddl_comm_recv(ddl_comm_t comm, void* buffer, size_t nbytes, int source, int tag);
/* From whichever rank sends with this tag first; *source is its rank, unless `source` is NULL. */
DDL_API DDL_Result ddl_comm_recv_any(ddl_comm_t comm, void* buffer, size_t nbytes, int tag,
                                     int* source);

/* -- Asynchronous collectives ------------------------------------------------------------------
 *
 * As their blocking namesakes, but they return at once with a request. The buffers belong to the
 * library until the request is done. Needs MPI_THREAD_MULTIPLE, for which ddl_init asks; a program
 * that starts MPI itself must ask for it too, else these calls are DDL_ERROR_ARGUMENT.
 *
 * The operations of a communicator run one after the other, in the order of the calls, on a thread
 * that the first of them starts and that sleeps when there is nothing to do. A blocking collective
 * waits its turn behind them. The order of all calls must be the same on all ranks. As in MPI, a
 * blocking call is not matched by an asynchronous one. ddl_comm_free and ddl_finalize wait for the
 * pending operations. When the communicator has failed, all pending operations end with its error.
 *
 * Fusion: consecutive pending allreduces of the same type and operation travel as one message. It
 * has at most `-fusion_bytes N` or DDL_FUSION_BYTES (1 MiB; 0: never). It is sent when it is full,
 * a call of another kind follows, some thread waits, or the first call is `-fusion_wait MS` or
 * DDL_FUSION_WAIT old (1 ms). The ranks agree first on how many they all have. The results are bit
 * by bit the same as without fusion on one host, and with `-deterministic 1` or one `-schedule`.
 * Else the schedule, and with it the order of summation, goes by the size of the fused message. */

/* An operation under way. DDL_REQUEST_NULL stands for one that is done and succeeded. */
typedef struct ddl_request* ddl_request_t;
#define DDL_REQUEST_NULL ((ddl_request_t)0)

DDL_API DDL_Result ddl_comm_iallreduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                                       DDL_Type type, DDL_Op op, ddl_request_t* request);
DDL_API DDL_Result ddl_comm_ireduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                                    DDL_Type type, DDL_Op op, int root, ddl_request_t* request);
DDL_API DDL_Result ddl_comm_ireduce_scatter(ddl_comm_t comm, const void* send, void* recv,
                                            size_t recv_count, DDL_Type type, DDL_Op op,
                                            ddl_request_t* request);
DDL_API DDL_Result ddl_comm_ibroadcast(ddl_comm_t comm, void* buffer, size_t nbytes, int root,
                                       ddl_request_t* request);
DDL_API DDL_Result ddl_comm_iallgather(ddl_comm_t comm, const void* send, void* recv, size_t nbytes,
                                       ddl_request_t* request);
DDL_API DDL_Result ddl_comm_ibarrier(ddl_comm_t comm, ddl_request_t* request);

/* Waits until the request is done, frees it and sets it to DDL_REQUEST_NULL. The result is that of
 * the operation, and ddl_last_error() its sentence. Every request must be waited for, or tested
 * until it is done, once and by one thread; also after ddl_finalize. */
DDL_API DDL_Result ddl_wait(ddl_request_t* request);

/* Sets *is_done to 1, and then does as ddl_wait; or to 0, and the result is DDL_SUCCESS. */
DDL_API DDL_Result ddl_test(ddl_request_t* request, int* is_done);

/* As ddl_test, but waits for at most `seconds` (>= 0) until the request is done. */
DDL_API DDL_Result ddl_wait_for(ddl_request_t* request, double seconds, int* is_done);

/* The work that a communicator has done so far on this rank. */
typedef struct {
  uint64_t collectives;    /* carried out with success; a fused message counts once */
  uint64_t requests;       /* operations queued: asynchronous, or blocking behind such */
  uint64_t fused_requests; /* allreduces that travelled together with others */
  uint64_t fused_messages; /* the messages in which they did */
} ddl_stats;

/* `stats_size` is sizeof(ddl_stats): later versions may know more at the end. */
DDL_API DDL_Result ddl_comm_stats(ddl_comm_t comm, ddl_stats* stats, size_t stats_size);

/* -- DDL's own names, on all ranks ------------------------------------------------------------- */

/* In place over all ranks. */
DDL_API DDL_Result ddl_allreduce(void* buffer, size_t count, DDL_Type type, DDL_Op op);

/* As ddl_comm_reduce, over all ranks. */
DDL_API DDL_Result ddl_reduce(const void* send, void* recv, size_t count, DDL_Type type, DDL_Op op,
                              int root);

/* Memory for buffers. `alignment` is a power of two. Needs no ddl_init. */
DDL_API DDL_Result ddl_malloc(void** pointer, size_t alignment, size_t nbytes);
DDL_API DDL_Result ddl_free(void* pointer);

#ifdef __cplusplus
}
#endif

#endif
