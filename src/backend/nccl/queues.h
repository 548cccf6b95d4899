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

// A stream, and a buffer for what is packed: its next user is behind on the stream.
struct Queue {
  std::shared_ptr<const cuda::Stream> stream;
  std::unique_ptr<cuda::Scratch> scratch;
};

class Queues {
 public:
  // A communicator, and this rank in it. To be named before it is handed to a co_await: GCC 12 destroys a braced
  // temporary there twice.
  struct Membership {
    std::vector<int> ranks;  // global ones, ascending
    int index;               // of this rank among them
    UniqueId id;
    int queue;     // the number of that on which it works
    int max_ctas;  // 0: NCCL chooses
  };

  Queues() = default;
  // Leaves all communicators.
  ~Queues();
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  // ---- once, by any thread, before a tensor on the GPU has been submitted.
  Status Use(std::shared_ptr<Library> library, std::shared_ptr<cuda::CudaDevices> devices, int streams);
  void Refuse(const std::string& why);

  // ---- any thread
  bool usable() const { return in_use_.load(std::memory_order_acquire); }
  std::string why_not() const;

  // ---- once in use
  const Library& library() const { return *work_->library; }
  cuda::CudaDevices& devices() const { return *work_->devices; }
  Queue& queue(int i) const { return work_->queues[i]; }

  // *member: in that communicator, which is made when it is first asked for. Collective over its ranks. `batch`: for
  // which it is.
  Task Join(Membership which, collective::Batch* batch, std::shared_ptr<Member>* member);
  // Begins a batch: what is put on the queue from now on begins when the tensors' inputs are there and their outputs
  // may be stored into. Ends when the device can take that, so many commands besides, without making the caller wait.
  Task Begin(collective::Batch* batch, const Queue& queue, size_t commands);
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
    std::vector<Queue> queues;
  };
  struct Launched {
    std::shared_ptr<cuda::Event> end;
    std::string what;
    size_t commands;
  };
  std::string Name() const { return library().maker().name; }  // NCCL or RCCL
  Task AwaitRoom(size_t commands, collective::Batch* batch);
  void ForgetEnded();
  void ForgetFirst();
  void LeaveAll(bool abort);
  // Until all have left, or the time is over.
  bool AwaitLeaving(double deadline) const;

  std::atomic<bool> in_use_{false};
  mutable std::mutex mutex_;  // guards why_not_
  std::string why_not_ = "no tensor on a GPU has been submitted on this rank yet";

  std::unique_ptr<Work> work_;
  std::map<std::pair<std::vector<int>, int>, std::shared_ptr<Member>> members_;  // by ranks and queue
  std::deque<Launched> launched_;                                                // and not known to have ended
  size_t commands_ = 0;                                                          // of launched_
  size_t unnoted_ = 0;      // commands of the batch that goes to a queue, which are not in launched_ yet
  double moved_at_ = 0;     // when one of them was last known to have ended
  bool launching_ = false;  // a batch goes to a queue; how it ends is not in launched_ yet
  std::vector<std::thread> leaving_;
  const std::shared_ptr<std::atomic<int>> still_in_nccl_ = std::make_shared<std::atomic<int>>(0);  // of leaving_
};

}  // namespace hvd::backend::nccl
