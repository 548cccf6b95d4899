// Backend: who executes a batch. A backend answers whether it is usable on this machine (and if not, why), which
// batches it supports, and how to run one. Found at run time; nobody asks how the library was built.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/devices.h"
#include "base/task.h"
#include "collective/batch.h"

namespace hvd::backend {

using collective::Batch;
using collective::Group;

// Batches of one track run one at a time, in the order of the log; no track waits for another.
enum class Track {
  kHost,    // the stages and channels of this rank
  kDevice,  // queues of work that devices do by themselves
  // Of a backend that needs both: its batch runs in the host's, when all before it on devices are launched, and nothing
  // is launched on devices that comes behind it until it has ended.
  kBoth,
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  // Empty: usable. Otherwise the reason, with a remedy: "libnccl.so.2 not found (pip install nvidia-nccl-cu13)".
  virtual std::string why_not() const = 0;
  // Whether there is none; asked for every batch.
  virtual bool usable() const { return why_not().empty(); }
  // Of the library behind it, as one number; 0: there is none.
  virtual int version() const { return 0; }
  // Empty: can run this batch. Otherwise the reason.
  virtual std::string Unsupported(const Group& group, const Batch& batch) const = 0;
  // Whether its batches lie on the members' devices, or else in the memory of their hosts.
  virtual bool for_devices() const { return false; }
  virtual Track track() const { return Track::kHost; }
  // Runs it: reads the inputs, fills the outputs or results. `group` and `batch` outlive the task. What lies on a
  // device need not be there when the task has ended, but when Tensor::ready says so. A failure leaves the engine
  // unusable.
  virtual Task Execute(const Group& group, Batch& batch) = 0;
  // Of the device track: whether the members must tell one another something about this batch before it is executed,
  // and that: over the host's ways, in the host track, as a batch of its number.
  virtual bool Prepares(const Batch& batch) const { return (void)batch, false; }
  virtual Task Prepare(const Group& group, Batch& batch);
  // What devices still do for batches, also for those whose task has ended: fails when one has not got on for so long.
  virtual Status CheckDevices(double now, double timeout_s) { return (void)now, (void)timeout_s, Status(); }
  // When that must be asked again at the latest; infinity: no device works.
  virtual double next_check(double timeout_s) const { return (void)timeout_s, std::numeric_limits<double>::infinity(); }
  // For good: returns when no device stores into a tensor any more.
  virtual void Abort() {}
  // What the timeline calls the work: "GLOO_ALLREDUCE" and the like.
  virtual std::string ActivityName(const Group& group, const Batch& batch) const = 0;

  // Batches that it has executed to their end. Any thread may read.
  uint64_t batches() const { return batches_.load(std::memory_order_relaxed); }
  void CountBatch() { batches_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> batches_{0};
};

// How the members of a group agree, before their first batch on devices, how they are going to move it.
class Introducer {
 public:
  virtual ~Introducer() = default;
  // Before `batch`, over the host's ways, as a batch of its number. Sets group.device_way, alike on all members.
  virtual Task Introduce(Group& group, const Batch& batch) = 0;
};

// "ALLREDUCE", "BCAST" and the like, for ActivityName.
const char* ActivityOf(OpType type);

// By priority: the last added first. The first that supports a batch runs it.
class Registry {
 public:
  void Add(std::unique_ptr<Backend> backend) { backends_.insert(backends_.begin(), std::move(backend)); }
  // Fails with kBackendUnavailable and one reason per backend.
  Result<Backend*> Choose(const Group& group, const Batch& batch) const;
  const std::vector<std::unique_ptr<Backend>>& all() const { return backends_; }
  Introducer* introducer() const { return introducer_.get(); }
  void SetIntroducer(std::unique_ptr<Introducer> introducer) { introducer_ = std::move(introducer); }
  // Null: this rank has used no device yet. Any thread; set once.
  Devices* devices() const { return devices_.load(std::memory_order_acquire); }
  void SetDevices(Devices* devices) { devices_.store(devices, std::memory_order_release); }
  // Of all backends, as there. Without devices nothing is asked.
  Status CheckDevices(double now, double timeout_s) const;
  double next_check(double timeout_s) const;
  void Abort() noexcept;
  // Small operations, too, are to be batches that a backend runs, and go no shorter way. Any thread.
  bool batches_only() const { return batches_only_.load(std::memory_order_relaxed); }
  void SetBatchesOnly() { batches_only_.store(true, std::memory_order_relaxed); }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<Introducer> introducer_;
  std::atomic<Devices*> devices_{nullptr};
  std::atomic<bool> batches_only_{false};
};

}  // namespace hvd::backend
