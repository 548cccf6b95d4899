#include "backend/mpi/job.h"

#include <algorithm>
#include <tuple>

namespace hvd::backend::mpi {
namespace {

constexpr size_t kLeastBytes = 4096;

// Leaked on purpose, with all jobs in it.
struct Jobs {
  std::mutex mutex;  // guards the rest
  std::map<std::tuple<std::string, Style, Handle>, std::shared_ptr<Job>> by_name;
  std::string out_of_use;
};

Jobs& All() {
  static auto* const all = new Jobs;
  return *all;
}

}  // namespace

std::byte* Workspace::Room(std::unique_ptr<collective::Block>* block, size_t bytes) {
  if (*block == nullptr || (*block)->data == nullptr || (*block)->bytes < bytes) {
    block->reset();
    *block = std::make_unique<collective::Block>(std::max(bytes, kLeastBytes));
  }
  return (*block)->data;
}

Result<std::shared_ptr<Job>> Job::Of(const std::string& path, Style style, Handle everybody) {
  Jobs& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::shared_ptr<Job>& job = all.by_name[{path, style, everybody}];
  if (job == nullptr) {
    auto library = Library::Open(path, style);
    HVD_TRY(library.status());
    job.reset(new Job(std::move(*library), everybody));
  }
  return job;
}

Handle Job::Find(const std::vector<int>& ranks) const {
  const auto found = of_ranks_.find(ranks);
  return found == of_ranks_.end() ? 0 : found->second;
}

void Job::Abandon(const std::string& why) {
  if (!usable_.exchange(false, std::memory_order_acq_rel)) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    why_ = why;
  }
  Jobs& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.out_of_use.empty()) all.out_of_use = why;
}

std::string Job::out_of_use() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return why_;
}

std::string Job::AnyOutOfUse() {
  Jobs& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  return all.out_of_use;
}

}  // namespace hvd::backend::mpi
