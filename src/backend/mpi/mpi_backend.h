// MpiBackend: an MPI library that the process has opened and initialised moves the tensors (docs/design/0014-mpi.md,
// decision 3). Out of use until it is given a job.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "backend/mpi/job.h"

namespace hvd::backend::mpi {

class MpiBackend final : public Backend {
 public:
  const char* name() const override { return "mpi"; }
  bool usable() const override;
  std::string why_not() const override;
  std::string Unsupported(const Group& group, const Batch& batch) const override;
  Task Execute(const Group& group, Batch& batch) override;
  std::string ActivityName(const Group& group, const Batch& batch) const override;

  // ---- any thread, while no batch runs
  void Use(std::shared_ptr<Job> job);
  void Refuse(const std::string& why);
  // The ranks of this job cannot end it together any more.
  void GiveUp(const std::string& why);

 private:
  std::shared_ptr<Job> job() const;

  mutable std::mutex mutex_;  // guards what follows
  std::string why_not_ = "HOROVOD_CPU_OPERATIONS=mpi does not ask for it";
  std::shared_ptr<Job> job_;
  std::atomic<const Job*> in_use_{nullptr};  // the same
};

}  // namespace hvd::backend::mpi
