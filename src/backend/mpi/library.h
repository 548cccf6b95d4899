// Library: the functions of an MPI library that this process has opened and initialised, with failures as Status. It
// knows no job. The caller decides which thread calls it: one thread at a time, unless MPI allows more.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/mpi/handles.h"

namespace hvd::backend::mpi {

class Library {
 public:
  // `path`: as the process has opened it. Stays open for good.
  static Result<std::unique_ptr<Library>> Open(const std::string& path, Style style);

  const std::string& path() const { return path_; }
  const Handles& handles() const { return handles_; }

  // A communicator of these ranks of `base`, in their order, whose errors are returned. Collective over them, and
  // blocks.
  Status MakeCommunicator(Handle base, const std::vector<int>& ranks, Handle* made) const;

  // ---- each begins an operation of all ranks of `comm`: *request. Memory and counts stay as they are until it is
  // done.
  Status StartAllreduce(const void* from, void* to, int elems, Handle type, Handle op, Handle comm,
                        Handle* request) const {
    return Check("MPI_Iallreduce", iallreduce_(from, to, elems, type, op, comm, request));
  }
  // Of bytes: the same number from each rank.
  Status StartAllgather(const void* from, void* to, int bytes, Handle comm, Handle* request) const {
    return Check("MPI_Iallgather", iallgather_(from, bytes, handles_.byte, to, bytes, handles_.byte, comm, request));
  }
  // Of bytes: counts[r] from rank r, to places[r].
  Status StartAllgather(const void* from, int bytes, void* to, const int* counts, const int* places, Handle comm,
                        Handle* request) const {
    return Check("MPI_Iallgatherv",
                 iallgatherv_(from, bytes, handles_.byte, to, counts, places, handles_.byte, comm, request));
  }
  // Of bytes: the same number from each rank to each.
  Status StartAlltoall(const void* from, void* to, int bytes, Handle comm, Handle* request) const {
    return Check("MPI_Ialltoall", ialltoall_(from, bytes, handles_.byte, to, bytes, handles_.byte, comm, request));
  }
  struct Parts {
    const int *counts, *places;  // per rank, in bytes
  };
  Status StartAlltoall(const void* from, Parts sent, void* to, Parts received, Handle comm, Handle* request) const {
    return Check("MPI_Ialltoallv", ialltoallv_(from, sent.counts, sent.places, handles_.byte, to, received.counts,
                                               received.places, handles_.byte, comm, request));
  }
  Status StartBroadcast(void* data, int bytes, int root, Handle comm, Handle* request) const {
    return Check("MPI_Ibcast", ibcast_(data, bytes, handles_.byte, root, comm, request));
  }
  Status StartBarrier(Handle comm, Handle* request) const { return Check("MPI_Ibarrier", ibarrier_(comm, request)); }
  // Moves what can move; *done: the operation is over.
  Status Test(Handle* request, bool* done) const {
    int flag = 0;
    char state[64];  // an MPI_Status of any library fits: 20 to 32 bytes
    const Status status = Check("MPI_Test", test_(request, &flag, state));
    *done = flag != 0;
    return status;
  }

 private:
  Library(std::string path, const Handles& handles) : path_(std::move(path)), handles_(handles) {}
  Status Bind(void* library);
  Status Check(const char* function, int code) const { return code == 0 ? Status() : Failed(function, code); }
  Status Failed(const char* function, int code) const;

  const std::string path_;
  const Handles handles_;
  int (*error_string_)(int, char*, int*) = nullptr;
  int (*comm_group_)(Handle, Handle*) = nullptr;
  int (*group_incl_)(Handle, int, const int*, Handle*) = nullptr;
  int (*comm_create_group_)(Handle, Handle, int, Handle*) = nullptr;
  int (*comm_set_errhandler_)(Handle, Handle) = nullptr;
  int (*group_free_)(Handle*) = nullptr;
  int (*iallreduce_)(const void*, void*, int, Handle, Handle, Handle, Handle*) = nullptr;
  int (*iallgather_)(const void*, int, Handle, void*, int, Handle, Handle, Handle*) = nullptr;
  int (*iallgatherv_)(const void*, int, Handle, void*, const int*, const int*, Handle, Handle, Handle*) = nullptr;
  int (*ialltoall_)(const void*, int, Handle, void*, int, Handle, Handle, Handle*) = nullptr;
  int (*ialltoallv_)(const void*, const int*, const int*, Handle, void*, const int*, const int*, Handle, Handle,
                     Handle*) = nullptr;
  int (*ibcast_)(void*, int, Handle, int, Handle, Handle*) = nullptr;
  int (*ibarrier_)(Handle, Handle*) = nullptr;
  int (*test_)(Handle*, int*, void*) = nullptr;
};

}  // namespace hvd::backend::mpi
