// Library: the functions of an MPI library that this process has opened and initialised, with failures as Status. It
// knows no job. The caller decides which thread calls it: one thread at a time, unless MPI allows more.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/mpi/handles.h"
#include "base/symbols.h"

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
    return Call(iallreduce_, from, to, elems, type, op, comm, request);
  }
  // Of bytes: the same number from each rank.
  Status StartAllgather(const void* from, void* to, int bytes, Handle comm, Handle* request) const {
    return Call(iallgather_, from, bytes, handles_.byte, to, bytes, handles_.byte, comm, request);
  }
  // Of bytes: counts[r] from rank r, to places[r].
  Status StartAllgather(const void* from, int bytes, void* to, const int* counts, const int* places, Handle comm,
                        Handle* request) const {
    return Call(iallgatherv_, from, bytes, handles_.byte, to, counts, places, handles_.byte, comm, request);
  }
  // Of bytes: the same number from each rank to each.
  Status StartAlltoall(const void* from, void* to, int bytes, Handle comm, Handle* request) const {
    return Call(ialltoall_, from, bytes, handles_.byte, to, bytes, handles_.byte, comm, request);
  }
  struct Parts {
    const int *counts, *places;  // per rank, in bytes
  };
  Status StartAlltoall(const void* from, Parts sent, void* to, Parts received, Handle comm, Handle* request) const {
    return Call(ialltoallv_, from, sent.counts, sent.places, handles_.byte, to, received.counts, received.places,
                handles_.byte, comm, request);
  }
  Status StartBroadcast(void* data, int bytes, int root, Handle comm, Handle* request) const {
    return Call(ibcast_, data, bytes, handles_.byte, root, comm, request);
  }
  Status StartBarrier(Handle comm, Handle* request) const { return Call(ibarrier_, comm, request); }
  // Moves what can move; *done: the operation is over.
  Status Test(Handle* request, bool* done) const {
    int flag = 0;
    char state[64];  // an MPI_Status of any library fits: 20 to 32 bytes
    const Status status = Call(test_, request, &flag, state);
    *done = flag != 0;
    return status;
  }

 private:
  Library(std::string path, const Handles& handles, void* opened)
      : path_(std::move(path)), handles_(handles), symbols_(opened) {}
  template <class... Arguments>
  Status Call(const Imported<int(Arguments...)>& function, std::type_identity_t<Arguments>... arguments) const {
    const int code = function(arguments...);
    return code == 0 ? Status() : Failed(function.name(), code);
  }
  Status Failed(const char* function, int code) const;

  const std::string path_;
  const Handles handles_;
  Symbols symbols_;
  const Imported<int(int, char*, int*)> error_string_{symbols_, "MPI_Error_string"};
  const Imported<int(Handle, Handle*)> comm_group_{symbols_, "MPI_Comm_group"};
  const Imported<int(Handle, int, const int*, Handle*)> group_incl_{symbols_, "MPI_Group_incl"};
  const Imported<int(Handle, Handle, int, Handle*)> comm_create_group_{symbols_, "MPI_Comm_create_group"};
  const Imported<int(Handle, Handle)> comm_set_errhandler_{symbols_, "MPI_Comm_set_errhandler"};
  const Imported<int(Handle*)> group_free_{symbols_, "MPI_Group_free"};
  const Imported<int(const void*, void*, int, Handle, Handle, Handle, Handle*)> iallreduce_{symbols_, "MPI_Iallreduce"};
  const Imported<int(const void*, int, Handle, void*, int, Handle, Handle, Handle*)> iallgather_{symbols_,
                                                                                                 "MPI_Iallgather"};
  const Imported<int(const void*, int, Handle, void*, const int*, const int*, Handle, Handle, Handle*)> iallgatherv_{
      symbols_, "MPI_Iallgatherv"};
  const Imported<int(const void*, int, Handle, void*, int, Handle, Handle, Handle*)> ialltoall_{symbols_,
                                                                                                "MPI_Ialltoall"};
  const Imported<int(const void*, const int*, const int*, Handle, void*, const int*, const int*, Handle, Handle,
                     Handle*)>
      ialltoallv_{symbols_, "MPI_Ialltoallv"};
  const Imported<int(void*, int, Handle, int, Handle, Handle*)> ibcast_{symbols_, "MPI_Ibcast"};
  const Imported<int(Handle, Handle*)> ibarrier_{symbols_, "MPI_Ibarrier"};
  const Imported<int(Handle*, int*, void*)> test_{symbols_, "MPI_Test"};
};

}  // namespace hvd::backend::mpi
