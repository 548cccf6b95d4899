#include "backend/mpi/waits.h"

#include <utility>

#include "base/polled.h"
#include "base/thread.h"

namespace hvd::backend::mpi {
namespace {

// For so long a rank looks all the time: data move only while it does. More than most networks take.
constexpr double kLivelyS = 500e-6, kSlowBytesPerS = 250e6;

class Guard {
 public:
  explicit Guard(Job* job) : job_(job) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() {
    if (job_ != nullptr) job_->Abandon("an operation of MPI was given up before all ranks had finished it.");
  }
  void Over() { job_ = nullptr; }

 private:
  Job* job_;
};

struct Making {
  Handle made = 0;
  Status status;
  std::atomic<bool> done{false};
};

Status StartMaking(const Job& job, const std::vector<int>& ranks, const std::shared_ptr<Making>& making) {
  const auto make = [&library = job.library(), everybody = job.everybody(), ranks, making] {
    making->status = library.MakeCommunicator(everybody, ranks, &making->made);
    making->done.store(true, std::memory_order_release);
  };
  Result<std::thread> thread = StartThread("a thread that makes a communicator", make);
  HVD_TRY(thread.status());
  thread->detach();  // where a member has died it never returns
  return Status();
}

}  // namespace

Task Finished(Job& job, Status begun, size_t bytes) {
  Guard guard(&job);
  Status status = std::move(begun);
  if (status.ok()) {
    const auto over = [&] {
      bool done = false;
      status = job.library().Test(&job.workspace().request, &done);
      return done || !status.ok();
    };
    co_await Polled(over, kLivelyS + static_cast<double>(bytes) / kSlowBytesPerS);
  }
  if (status.ok()) {
    guard.Over();
  } else {
    job.Abandon(status.message());
  }
  co_return status;
}

Task CommunicatorOf(Job& job, const std::vector<int>& ranks, Handle* comm) {
  *comm = job.Find(ranks);
  if (*comm != 0) co_return Status();
  const auto making = std::make_shared<Making>();
  HVD_CO_TRY(StartMaking(job, ranks, making));
  Guard guard(&job);
  co_await Polled([&] { return making->done.load(std::memory_order_acquire); }, 0);
  HVD_CO_TRY(making->status);
  guard.Over();
  job.Keep(ranks, making->made);
  *comm = making->made;
  co_return Status();
}

}  // namespace hvd::backend::mpi
