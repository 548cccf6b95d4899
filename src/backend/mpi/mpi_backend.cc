#include "backend/mpi/mpi_backend.h"

#include "backend/mpi/collectives.h"
#include "collective/batch_log.h"

namespace hvd::backend::mpi {

bool MpiBackend::usable() const {
  const Job* const job = in_use_.load(std::memory_order_acquire);
  return job != nullptr && job->usable();
}

std::string MpiBackend::why_not() const {
  const std::shared_ptr<Job> used = job();
  if (used != nullptr) return used->out_of_use();
  std::lock_guard<std::mutex> lock(mutex_);
  return why_not_;
}

// The same on all members: it depends on nothing but what all know of group and batch.
std::string MpiBackend::Unsupported(const Group& group, const Batch& batch) const {
  if (group.size() == 1) return "there is no other member";
  if (batch.type == OpType::kAllreduce && batch.op == ReduceOp::kAdasum) return "MPI has no Adasum";
  if (IsPointToPoint(batch.type)) return "a send goes by the connection between the two ranks";
  return "";
}

Task MpiBackend::Execute(const Group& group, Batch& batch) {
  collective::LogWay(batch, "by MPI");
  return Collective(*job(), group, batch);
}

std::string MpiBackend::ActivityName(const Group&, const Batch& batch) const {
  return std::string("MPI_") + ActivityOf(batch.type);
}

void MpiBackend::Use(std::shared_ptr<Job> job) {
  std::lock_guard<std::mutex> lock(mutex_);
  job_ = std::move(job);
  in_use_.store(job_.get(), std::memory_order_release);
}

void MpiBackend::Refuse(const std::string& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  why_not_ = why;
}

void MpiBackend::GiveUp(const std::string& why) {
  if (const std::shared_ptr<Job> used = job()) used->Abandon(why);
}

std::shared_ptr<Job> MpiBackend::job() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return job_;
}

}  // namespace hvd::backend::mpi
