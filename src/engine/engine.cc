#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "backend/gpu.h"
#include "backend/host_backend.h"
#include "backend/mpi/mpi_backend.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/describe.h"
#include "engine/entry/outcomes.h"
#include "engine/links/config.h"
#include "engine/record/profiler_range.h"

namespace hvd::engine {
namespace {

constexpr size_t kMostLastWords = 4096;  // bytes
constexpr double kSendsS = 2;            // until it is said that shutdown waits for sends to be received
constexpr double kCulpritS = 2;          // for a process to end that is about to

std::unique_ptr<Express> MakeExpress(const hvd_config& c, const Connections& connections) {
  if (c.size == 1) return std::make_unique<Express>(nullptr);
  if (!connections.one_host() || c.size > Express::kMostRanks || c.spin_us == 0) return nullptr;
  return std::make_unique<Express>(connections.neighbours());
}

// Of operations that a thread waits for.
std::string RangeName(const hvd_op* ops, int n) {
  if (n < 1 || ops->type < HVD_ALLREDUCE || ops->type > HVD_BARRIER) return "";
  std::string name = NameOf(static_cast<OpType>(ops->type));
  if (ops->name != nullptr && ops->name[0] != '\0') name += std::string(" '") + ops->name + "'";
  return n > 1 ? name + " and " + std::to_string(n - 1) + " more" : name;
}

// Process set 0.
std::shared_ptr<ProcessSets::Set> AddEverybody(int size, ProcessSets* sets) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  sets->Add(0, std::move(ranks));
  return sets->Find(0);
}

Timeline::Plan TracePlanFrom(const hvd_config& c) {
  Timeline::Plan plan;
  plan.all_ranks = c.timeline_ranks == 0;
  // Tools that read the form of rank 0 alone expect one file.
  plan.most_bytes = plan.all_ranks ? int64_t{c.timeline_max_mb} << 20 : 0;
  plan.rank = c.rank;
  plan.host = c.hostname != nullptr ? c.hostname : "";
  plan.job = c.timeline_job != nullptr ? c.timeline_job : "";
  plan.epoch = c.epoch >> 20;  // the launcher's; below it are starts of the program
  plan.other_hosts =
      std::any_of(c.host_of_rank, c.host_of_rank + c.size, [&](int h) { return h != c.host_of_rank[0]; });
  return plan;
}

}  // namespace

Result<Engine::Ways> Engine::Open(const hvd_config& config, const Connections::MapArena& map) {
  Descriptors given(config);
  HVD_TRY(CheckConfig(config));
  SetLogLevel(static_cast<LogLevel>(config.log_level));
  SetLogTime(config.log_hide_time == 0);
  SetLogPrefix("[rank " + std::to_string(config.rank) + "] ");
  auto connections = Connections::Open(config, &given, map);
  HVD_TRY(connections.status());
  auto waker = Waker::Open(config.rank, (*connections)->doorbell(), (*connections)->neighbours());
  HVD_TRY(waker.status());
  auto watch = Watch::Open(config, &given, waker->get(),
                           [ways = connections->get()](int rank) { return ways->last_word(rank); });
  HVD_TRY(watch.status());
  HVD_TRY((*connections)->WatchWith(waker->get()));
  return Ways{std::move(*connections), std::move(*waker), std::move(*watch)};
}

Result<std::unique_ptr<Engine>> Engine::Create(const hvd_config& config, const Connections::MapArena& map) {
  Result<Ways> ways = Open(config, map);
  HVD_TRY(ways.status());
  std::unique_ptr<Engine> engine(new Engine(config, std::move(*ways)));
  HVD_TRY(engine->Start(config));
  return engine;
}

// clang-format off: it would put each name on a line of its own
Engine::Engine(const hvd_config& c, Ways ways)
    : topology_{c.rank, c.size, c.local_rank, c.local_size, c.cross_rank, c.cross_size},
      hostname_(c.hostname != nullptr ? c.hostname : ""),
      fixed_settings_(DescribeFixedSettings(c)),
      trace_plan_(TracePlanFrom(c)),
      connections_(std::move(ways.connections)),
      waker_(std::move(ways.waker)),
      watch_(std::move(ways.watch)),
      counters_(c.counters),
      submissions_(&counters_),
      sets_(&connections_->transports(), {.deterministic = c.deterministic != 0, .store_mode = c.store_mode}),
      tuning_(ParametersFrom(c)),
      stamp_(c.cycle_time_ms > 0),
      node_(NodeConfigFrom(c)),
      arrivals_(&role_),
      self_sends_({.submissions = &submissions_, .arrivals = &arrivals_, .counters = &counters_}),
      tracing_({.timeline = &timeline_, .node = &node_, .connections = connections_.get(),
                .submissions = &submissions_, .arrivals = &arrivals_},
               {trace_plan_, std::vector<int>(c.host_of_rank, c.host_of_rank + c.size)}),
      executor_({.backends = &backends_, .timeline = &timeline_, .transports = &connections_->transports(),
                 .tuning = &tuning_},
                {[this](BatchRun& run, const Status& status) { orders_.Finish(run, status); },
                 [this](const Status& why) { verdict_.GaveUp(why); }}),
      verdict_({.submissions = &submissions_, .backends = &backends_, .executor = &executor_, .node = &node_,
                .connections = connections_.get(), .watch = watch_.get(), .arrivals = &arrivals_, .counters = &counters_}),
      feed_({.submissions = &submissions_, .sets = &sets_, .timeline = &timeline_, .node = &node_,
             .connections = connections_.get(), .verdict = &verdict_, .stamp = &stamp_, .self_sends = &self_sends_,
             .tracing = &tracing_}),
      orders_({.rank = c.rank, .submissions = &submissions_, .sets = &sets_, .timeline = &timeline_,
               .executor = &executor_, .watch = watch_.get(), .arrivals = &arrivals_, .verdict = &verdict_,
               .counters = &counters_, .tuning = &tuning_, .stamp = &stamp_, .feed = &feed_,
               .self_sends = &self_sends_, .tracing = &tracing_}),
      progress_({.feed = &feed_, .orders = &orders_, .node = &node_, .executor = &executor_, .backends = &backends_,
                 .connections = connections_.get(), .watch = watch_.get(), .verdict = &verdict_, .arrivals = &arrivals_,
                 .stamp = &stamp_, .tracing = &tracing_},
                c.collective_timeout_s),
      spread_(connections_->neighbours() ? std::make_unique<Spread>(connections_->neighbours()) : nullptr),
      express_(MakeExpress(c, *connections_)),
      driver_({.role = &role_, .waker = waker_.get(), .watch = watch_.get(), .connections = connections_.get(),
               .arrivals = &arrivals_, .progress = &progress_}),
      waiter_(&driver_, express_.get(), spread_.get(), &counters_, c.spin_us),
      intake_({.submissions = &submissions_, .sets = &sets_, .waker = waker_.get(), .driver = &driver_,
               .timeline = &timeline_, .backends = &backends_},
              c.rank, c.size == 1),
      express_path_({.express = express_.get(), .spread = spread_.get(), .submissions = &submissions_,
                     .timeline = &timeline_, .executor = &executor_, .connections = connections_.get(),
                     .verdict = &verdict_, .arrivals = &arrivals_, .driver = &driver_, .counters = &counters_,
                     .backends = &backends_},
                    AddEverybody(c.size, &sets_)),
      background_(&driver_) {
  // clang-format on
  auto by_mpi = std::make_unique<backend::mpi::MpiBackend>();
  mpi_ = by_mpi.get();
  auto by_host = std::make_unique<backend::HostBackend>();
  backend::Backend* const host = by_host.get();
  backends_.Add(std::move(by_host));
  backends_.Add(std::move(by_mpi));
  gpus_ = std::make_unique<backend::GpuBackends>(&backends_, host);
  timeline_.SetRing([this] { waker_->LookSoon(); });
}

Status Engine::Start(const hvd_config& c) {
  // The log begins with it: each rank was given its own, and who goes another way than the others would take what lies
  // in their stages for a result.
  if (c.rank == 0 && !connections_->one_host()) HVD_TRY(intake_.ChangeParameters(ParametersFrom(c)));
  if (c.timeline_path != nullptr && c.timeline_path[0] != '\0')
    HVD_TRY(StartTimeline(c.timeline_path, c.timeline_mark_cycles != 0, c.timeline_continues != 0));
  ShowRangesBy(c.nvtx_library);
  if (LogEnabled(LogLevel::kDebug)) Log(LogLevel::kDebug, "started: " + DescribeJson());
  return background_.Start(c.thread_affinity);
}

// NOLINTNEXTLINE(bugprone-exception-escape): without memory, and then the process ends.
Engine::~Engine() {
  if (background_.running()) Shutdown(0);
}

Status Engine::Run(const hvd_op* ops, int n, double timeout_s, std::shared_ptr<Completion>* out) {
  const ProfilerRange range([&] { return RangeName(ops, n); });
  std::string counted;
  if (n == 1 && express_path_.Run(*ops, &counted, out)) return Status();
  if (Status refused = intake_.Submit(ops, n, HVD_SUBMIT_WILL_WAIT, out, counted); !refused.ok()) {
    Poll();  // the role may have been put down with something left to read
    return refused;
  }
  Wait(**out, timeout_s);
  return Status();
}

void Engine::Abort(const Status& why, bool tell_others) { Stop({.why = why, .tell_others = tell_others}); }

void Engine::Stop(submission::Abort how) {
  std::shared_ptr<Completion> obeyed;
  if (!intake_.Abort(std::move(how), &obeyed).ok()) return;          // everything has failed already
  while (!Wait(*obeyed, std::numeric_limits<double>::infinity())) {  // a signal came
  }
}

Status Engine::Connected(int rank, Fd connection, const Status& why_not) {
  const Status delivered = connections_->openings().Deliver(rank, std::move(connection), why_not);
  driver_.Poll();
  return delivered;
}

// Called before this rank's first batch: there is none that all ranks have agreed upon.
Status Engine::UseMpi(const hvd_mpi& mpi) {
  if (mpi.why_not != nullptr && mpi.why_not[0] != '\0') {
    mpi_->Refuse(mpi.why_not);
    return Status();
  }
  auto job = backend::mpi::Job::Of(mpi.library, static_cast<backend::mpi::Style>(mpi.style), mpi.communicator);
  HVD_TRY(job.status());
  if (mpi.communicator == 0) return Status();
  if (!(*job)->usable()) return Status(Code::kBackendUnavailable, (*job)->out_of_use());
  std::vector<int> everybody(topology_.size);
  std::iota(everybody.begin(), everybody.end(), 0);
  (*job)->Keep(everybody, (*job)->everybody());
  mpi_->Use(*job);
  backends_.SetBatchesOnly();
  return Status();
}

Status Engine::UseGpu(const hvd_gpu& gpu) { return gpus_->Use(gpu); }

void Engine::SetLastWords(const std::string& why) { last_words_ = Shortened(why, kMostLastWords); }

// Sends that have returned are still to be received.
void Engine::AwaitSends(double deadline) {
  bool reported = false;
  for (const auto& sent : submissions_.CopiesForOthers()) {
    double now = NowS();
    while (!sent->done() && !verdict_.failed() && now < deadline) {
      if (!Wait(*sent, std::min(kSendsS, deadline - now)) && !std::exchange(reported, true))
        Log(LogLevel::kWarning, "shutdown waits for other ranks to receive what this one has sent; hvd_dump lists it.");
      now = NowS();
    }
  }
}

Status Engine::StartTimeline(const std::string& path, bool mark_cycles, bool continues) {
  if (topology_.rank != 0) return Status(Code::kInvalidArgument, "rank 0 writes the timeline; start it there.");
  std::lock_guard<std::mutex> life(trace_life_);
  Timeline::Plan plan = trace_plan_;
  plan.path = path;
  plan.mark_cycles = mark_cycles;
  plan.continues = continues && plan.all_ranks;
  HVD_TRY(timeline_.Start(plan));
  if (!plan.all_ranks || topology_.size == 1) return Status();
  others_trace_ = true;
  return intake_.BeginTrace(
      {.number = ++trace_number_, .on = true, .mark_cycles = mark_cycles, .base_us = timeline_.base_us()});
}

Status Engine::StopTimeline(double timeout_s) {
  std::lock_guard<std::mutex> life(trace_life_);
  BeginStopOfTimeline(timeout_s);
  return timeline_.Stop();
}

// All but the wait for this rank's writer.
void Engine::BeginStopOfTimeline(double timeout_s) {
  const bool through_this_rank = topology_.rank != 0 && tracing_.awaits_others();
  if ((std::exchange(others_trace_, false) || through_this_rank) && !verdict_.failed()) EndTraceOfOthers(timeout_s);
  timeline_.BeginStop();
}

// Until all have sent what they had, or have left.
void Engine::EndTraceOfOthers(double timeout_s) {
  std::shared_ptr<Completion> ended;
  uint64_t ticket = 0;
  if (!intake_.EndTrace({.number = trace_number_}, &ended, &ticket).ok()) return;
  const double deadline = NowS() + timeout_s;
  while (!Wait(*ended, deadline - NowS()) && NowS() < deadline) {  // a signal came
  }
  if (!ended->done()) (void)submissions_.TakeWish(ticket);
}

void Engine::Shutdown(double timeout_s) {
  counters_.steps.Close();
  if (!background_.running()) return;
  if (verdict_.failed()) mpi_->GiveUp("the ranks of the job did not end it together.");
  Completion& goodbye = progress_.goodbye();
  const double deadline = NowS() + timeout_s;
  if (last_words_.empty()) AwaitSends(NowS() + timeout_s / 2);
  // Before the goodbye: it goes over the same connections. Rank 0 keeps up those of the others; its disk may be slow,
  // and is waited for when they have left.
  const double tracing_s = std::min(2.0, timeout_s / 2);
  if (topology_.rank != 0) {
    (void)StopTimeline(tracing_s);
  } else if (last_words_.empty()) {
    std::lock_guard<std::mutex> life(trace_life_);
    BeginStopOfTimeline(tracing_s);
  }
  if (!verdict_.failed() && intake_.Goodbye(last_words_).ok()) {
    while (!goodbye.done() && !verdict_.failed() && NowS() < deadline) Wait(goodbye, std::min(0.1, deadline - NowS()));
  }
  const bool in_order = goodbye.done();
  Stop({.why = Status(Code::kShutdown, "the engine of rank " + std::to_string(topology_.rank) + " has shut down."),
        .tell_others = !in_order,
        .in_order = in_order});
  background_.Stop();
  // Nobody waits for these any more, and their tensors may be let go of: streams wait for devices that are behind.
  for (const auto& left : handles_.All()) (void)LetGo(*left);
  // A rank that has last words itself waits for no other, so two never wait for one another.
  if (last_words_.empty()) watch_->AwaitCulprits(std::min(kCulpritS, timeout_s));
  (void)timeline_.Stop();
  if (const auto shared = heap()) {  // also from children of this process, whom nothing will detach from now on
    if (Status s = shared->MakePrivate(); !s.ok()) Log(LogLevel::kWarning, s.message());
  }
  if (const auto shared = results()) {
    if (Status s = shared->MakePrivate(); !s.ok()) Log(LogLevel::kWarning, s.message());
  }
}

std::string Engine::DescribeJson() {
  return DescribeRank({.topology = topology_,
                       .hostname = hostname_,
                       .settings_json = DescribeSettings(tuning_.now(), fixed_settings_),
                       .connections = connections_.get(),
                       .backends = &backends_,
                       .sets = &sets_,
                       .counters = &counters_,
                       .in_flight = submissions_.in_flight(),
                       .failed = verdict_.failed()});
}

std::string Engine::DumpJson() {
  return DescribeWork(
      {.waiting = submissions_.ListWaiting(), .finished = counters_.finished.Last(), .sets = &sets_, .now = NowS()});
}

void Engine::DetachInChild() {
  watch_->DetachInChild();
  connections_->DetachInChild();
}

}  // namespace hvd::engine
