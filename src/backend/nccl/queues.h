// Queues: what works on the GPU of this rank for NCCL: streams, the communicators that it is a member of, and what has
// been launched and is not known to have ended. Used by the holder of the driver role, but for what says otherwise.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_devices.h"
#include "backend/nccl/member.h"
#include "collective/batch.h"

namespace hvd::backend::nccl {

// A stream, and a buffer for what is packed: whoever uses it next is behind on the stream.
struct Queue {
  std::shared_ptr<const cuda::Stream> stream;
  std::unique_ptr<cuda::Scratch> scratch;
};

class Queues {
 public:
  struct Limits {
    int max_ctas = 0;  // of a communicator; 0: NCCL chooses
    int streams = 1;
  };

  Queues() = default;
  // Leaves all communicators.
  ~Queues();
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  // ---- once, by any thread, before a tensor on the GPU has been submitted.
  Status Use(std::shared_ptr<Library> library, std::shared_ptr<cuda::CudaDevices> devices, const Limits& limits);
  void Refuse(const std::string& why);

  // ---- any thread
  bool usable() const { return in_use_.load(std::memory_order_acquire); }
  std::string why_not() const;

  // ---- once in use
  const Library& library() const { return *work_->library; }
  cuda::CudaDevices& devices() const { return *work_->devices; }
  Queue& queue(int i) const { return work_->queues[i]; }

  // *member: in communicator `queue` of these ranks (global ones, ascending), which has this id and is made when it is
  // first asked for. Collective over them. phases: of the batch that it is for, or null.
  Task Join(std::vector<int> ranks, int index, const UniqueId& id, int queue, Phases* phases,
            std::shared_ptr<Member>* member);
  // Begins a batch: what is put on the queue from now on begins when the tensors' inputs are there and their outputs
  // may be stored into.
  Status WaitForInputs(const collective::Batch& batch, const Queue& queue);
  // *end: of what has been put on the queue until now, which is watched from here. `what`: for reports.
  Status NoteLaunched(const Queue& queue, const char* what, std::shared_ptr<cuda::Event>* end);
  // All of the batch has been put on the queue.
  Status NoteEnd(const Queue& queue, collective::Batch* batch);

  // See Backend.
  Status CheckDevices(double now, double timeout_s);
  double next_check(double timeout_s) const;
  void Abort();

 private:
  struct Work {
    std::shared_ptr<cuda::CudaDevices> devices;
    std::shared_ptr<Library> library;
    int max_ctas;
    std::vector<Queue> queues;
  };
  struct Launched {
    std::shared_ptr<cuda::Event> end;
    std::string what;
  };
  void LeaveAll(bool abort);
  // Until all have left, or the time is over.
  bool AwaitLeaving(double deadline) const;

  std::atomic<bool> in_use_{false};
  mutable std::mutex mutex_;  // guards why_not_
  std::string why_not_ = "no tensor on a GPU has been submitted on this rank yet";

  std::unique_ptr<Work> work_;
  std::map<std::pair<std::vector<int>, int>, std::shared_ptr<Member>> members_;  // by ranks and queue
  std::deque<Launched> launched_;                                                // and not known to have ended
  double moved_at_ = 0;                                                          // when one of them was last known to
  bool launching_ = false;  // a batch goes to a queue; how it ends is not in launched_ yet
  std::vector<std::thread> leaving_;
  const std::shared_ptr<std::atomic<int>> still_in_nccl_ = std::make_shared<std::atomic<int>>(0);  // of leaving_
};

}  // namespace hvd::backend::nccl
