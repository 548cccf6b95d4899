// Job: a job's ranks as an MPI library sees them: their communicators, and the memory that MPI works on. Lives as long
// as the process: MPI may store into that memory after everybody else has given up, and a job that starts again in the
// same process uses the same communicators. Used by the holder of the driver role only, but for out_of_use.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/mpi/library.h"
#include "collective/batch.h"

namespace hvd::backend::mpi {

// What the operation under way works on; one at a time. Tensors are never given to MPI themselves: their owner has them
// back when a batch has failed, and MPI could still store into them.
struct Workspace {
  std::byte* Send(size_t bytes) { return Room(&send, bytes); }
  std::byte* Receive(size_t bytes) { return Room(&receive, bytes); }
  std::vector<int> sent, sent_at, received, received_at;  // counts and places, per member
  Handle request = 0;

 private:
  // Null: no memory.
  static std::byte* Room(std::unique_ptr<collective::Block>* block, size_t bytes);
  std::unique_ptr<collective::Block> send, receive;
};

class Job {
 public:
  // The one of this library and this communicator, which has the job's ranks in their order and returns errors. The
  // first call makes it. Any thread.
  static Result<std::shared_ptr<Job>> Of(const std::string& path, Style style, Handle everybody);

  const Library& library() const { return *library_; }
  Workspace& workspace() { return workspace_; }
  // The communicator of these ranks of the job, if there is one already; else 0.
  Handle Find(const std::vector<int>& ranks) const;
  void Keep(const std::vector<int>& ranks, Handle made) { of_ranks_[ranks] = made; }
  Handle everybody() const { return everybody_; }

  // Nobody will ever know what has become of the operation under way.
  void Abandon(const std::string& why);
  // Empty: it can be used. Any thread.
  std::string out_of_use() const;
  bool usable() const { return usable_.load(std::memory_order_acquire); }

  // Why any job of this process is out of use; empty: none is. For who would finalise MPI, and wait for ever.
  static std::string AnyOutOfUse();

 private:
  Job(std::unique_ptr<Library> library, Handle everybody) : library_(std::move(library)), everybody_(everybody) {}

  const std::unique_ptr<Library> library_;
  const Handle everybody_;
  std::map<std::vector<int>, Handle> of_ranks_;
  Workspace workspace_;
  std::atomic<bool> usable_{true};
  mutable std::mutex mutex_;  // guards why_
  std::string why_;
};

}  // namespace hvd::backend::mpi
