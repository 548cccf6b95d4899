// Backend: who executes a batch. A backend answers whether it is usable on this machine (and if not, why), which
// batches it supports, and how to run one. Found at run time; nobody asks how the library was built.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/task.h"
#include "collective/batch.h"

namespace hvd::backend {

using collective::Batch;
using collective::Group;

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
  // Runs it: reads the inputs, fills the outputs or results. `group` and `batch` outlive the task. A failure leaves the
  // engine unusable.
  virtual Task Execute(const Group& group, Batch& batch) = 0;
  // What the timeline calls the work: "GLOO_ALLREDUCE" and the like.
  virtual std::string ActivityName(const Group& group, const Batch& batch) const = 0;
};

// "ALLREDUCE", "BCAST" and the like, for ActivityName.
const char* ActivityOf(OpType type);

// By priority. The first that supports a batch runs it.
class Registry {
 public:
  void Add(std::unique_ptr<Backend> backend) { backends_.push_back(std::move(backend)); }
  // Fails with kBackendUnavailable and one reason per backend.
  Result<Backend*> Choose(const Group& group, const Batch& batch) const;
  const std::vector<std::unique_ptr<Backend>>& all() const { return backends_; }
  // Small operations, too, are to be batches that a backend runs, and go no shorter way. Any thread.
  bool batches_only() const { return batches_only_.load(std::memory_order_relaxed); }
  void SetBatchesOnly() { batches_only_.store(true, std::memory_order_relaxed); }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  std::atomic<bool> batches_only_{false};
};

}  // namespace hvd::backend
