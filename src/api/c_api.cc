// The functions of horovod.h. Thin: find the engine, convert, call, report.
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>

#include "api/guard.h"
#include "api/library.h"
#include "backend/mpi/job.h"
#include "base/limits.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/entry/outcomes.h"
#include "engine/record/dump_call.h"
#include "negotiation/values/tree.h"

namespace {

using hvd::Code;
using hvd::Status;
using hvd::api::BeforeFork;
using hvd::api::Current;
using hvd::api::Guard;
using hvd::api::InForkedChild;
using hvd::api::InForkingParent;
using hvd::api::Lib;
using hvd::api::Library;
using hvd::api::NotInitialized;
using hvd::engine::Completion;
using hvd::engine::Engine;
using hvd::engine::StateOf;

Status UnknownHandle(hvd_handle handle) {
  return Status(Code::kUnknownHandle,
                "unknown handle " + std::to_string(handle) + "; it was released or never existed.");
}

// Runs fn(engine) -> Status.
template <class F>
hvd_status WithEngine(F fn) {
  return Guard([&] {
    const std::shared_ptr<Engine> engine = Current();
    return engine ? fn(*engine) : NotInitialized();
  });
}

// Runs fn(engine, completion) -> Status.
template <class F>
hvd_status WithHandle(hvd_handle handle, F fn) {
  return WithEngine([&](Engine& engine) {
    const std::shared_ptr<Completion> completion = engine.handles().Find(handle);
    return completion ? fn(engine, *completion) : UnknownHandle(handle);
  });
}

Status Release(Engine& engine, hvd_handle handle) {
  const std::shared_ptr<Completion> completion = engine.handles().Take(handle);
  return completion ? hvd::engine::LetGo(*completion) : UnknownHandle(handle);
}

template <class F>
Status HandleFor(Engine& engine, hvd_handle* out, F submit) {
  // The place comes first: once submitted, the tensors are in use, and there must be a handle to wait for.
  const hvd_handle handle = engine.handles().Add(nullptr);
  std::shared_ptr<Completion> completion;
  Status refused;
  try {
    refused = submit(&completion);
  } catch (...) {  // without memory, say
    engine.handles().Take(handle);
    throw;
  }
  if (!refused.ok()) {
    engine.handles().Take(handle);
    return refused;
  }
  engine.handles().Fill(handle, std::move(completion));
  *out = handle;
  return Status();
}

// Of an operation that is under way, or has a result. Without memory for a handle nobody could wait for it any more, so
// it is waited for here: when this fails, the tensors are in nobody's use.
Status HandleFor(Engine& engine, const std::shared_ptr<Completion>& completion, hvd_handle* out) {
  if (hvd::border::Succeeds([&] { *out = engine.handles().Add(completion); })) return Status();
  while (!engine.Wait(*completion, std::numeric_limits<double>::infinity())) {  // a signal came
  }
  return completion->status().ok() ? hvd::OutOfMemory() : completion->status();
}

Status Copy(const std::string& text, char* buffer, size_t n, size_t* needed) {
  *needed = text.size() + 1;
  if (n > 0) {
    const size_t take = std::min(n - 1, text.size());
    std::memcpy(buffer, text.data(), take);
    buffer[take] = '\0';
  }
  return Status();
}

Status CopyInts(const std::vector<int>& from, int32_t* to, int32_t* n) {
  const int32_t room = *n;
  *n = static_cast<int32_t>(from.size());
  if (room < *n)
    return Status(Code::kInvalidArgument,
                  "room for " + std::to_string(room) + " entries, " + std::to_string(*n) + " needed.");
  std::copy(from.begin(), from.end(), to);
  return Status();
}

}  // namespace

extern "C" {

int32_t hvd_abi_version(void) { return HVD_ABI_VERSION; }
const char* hvd_last_error(void) { return hvd::api::LastError(); }

int64_t hvd_region_bytes(int32_t local_size, int64_t resident_bytes) {
  return static_cast<int64_t>(hvd::transport::Arena::FixedBytes(std::max(1, local_size))) +
         std::max<int64_t>(0, resident_bytes);
}

hvd_status hvd_init(const hvd_config* config) {
  return Guard([&]() -> Status {
    if (config == nullptr) return Status(Code::kInvalidArgument, "hvd_init: config is null.");
    const auto refuse = [&](Status why) {
      const hvd::engine::Descriptors closed_here(*config);
      return why;
    };
    Library& lib = Lib();
    if (lib.forked) return refuse(NotInitialized());
    std::lock_guard<std::mutex> life(lib.life);
    if (Current())
      return refuse(Status(Code::kInvalidArgument, "hvd_init: already initialised; call hvd_shutdown first."));
    static const int at_fork = pthread_atfork(&BeforeFork, &InForkingParent, &InForkedChild);
    if (at_fork != 0) return refuse(hvd::SystemFailure("cannot prepare for forks", at_fork));
    auto engine = Engine::Create(*config);
    HVD_TRY(engine.status());
    std::lock_guard<std::mutex> lock(lib.mutex);
    lib.engine = std::move(*engine);
    lib.to_detach = lib.engine.get();
    return Status();
  });
}

hvd_status hvd_connected(int32_t rank, int32_t fd, const char* why_not) {
  hvd::Fd connection(fd);
  return WithEngine([&](Engine& engine) {
    const Status why = fd >= 0 ? Status() : Status(Code::kPeerLost, why_not ? why_not : "no reason given.");
    return engine.Connected(rank, std::move(connection), why);
  });
}

hvd_status hvd_tree(const int32_t* host_of_rank, int32_t size, int32_t* parent) {
  return Guard([&] {
    const std::vector<int> tree = hvd::negotiation::BuildTree(std::vector<int>(host_of_rank, host_of_rank + size));
    std::copy(tree.begin(), tree.end(), parent);
    return Status();
  });
}

hvd_status hvd_last_words(const char* why) {
  return WithEngine([&](Engine& engine) {
    std::lock_guard<std::mutex> life(Lib().life);
    engine.SetLastWords(why ? why : "");
    return Status();
  });
}

hvd_status hvd_shutdown(double timeout_s) {
  return Guard([&] {
    Library& lib = Lib();
    std::lock_guard<std::mutex> life(lib.life);
    const std::shared_ptr<Engine> engine = Current();
    if (!engine) return Status();
    engine->Shutdown(timeout_s);
    lib.to_detach = nullptr;
    std::lock_guard<std::mutex> lock(lib.mutex);
    lib.engine.reset();
    hvd::collective::Block::FreeKept();
    return Status();
  });
}

hvd_status hvd_abort(hvd_status code, const char* reason) {
  return WithEngine([&](Engine& engine) {
    if (!hvd::IsFailure(code)) {
      return Status(Code::kInvalidArgument,
                    "hvd_abort: " + std::to_string(code) + " is not a failure; give a code such as HVD_INTERNAL.");
    }
    engine.Abort(Status(static_cast<Code>(code), reason ? reason : "aborted."));
    return Status();
  });
}

int32_t hvd_initialized(void) {
  bool running = false;
  return hvd::border::Succeeds([&] { running = Current() != nullptr; }) && running;
}

hvd_status hvd_get_topology(hvd_topology* out) {
  return WithEngine([&](Engine& engine) {
    *out = engine.topology();
    return Status();
  });
}

hvd_status hvd_use_mpi(const hvd_mpi* mpi) {
  return WithEngine([&](Engine& engine) {
    if (mpi == nullptr || mpi->struct_bytes != sizeof *mpi)
      return Status(Code::kInvalidArgument,
                    "hvd_use_mpi: not this library's hvd_mpi; library and Python package are of different versions.");
    return engine.UseMpi(*mpi);
  });
}

hvd_status hvd_use_gpu(const hvd_gpu* gpu) {
  return WithEngine([&](Engine& engine) {
    if (gpu == nullptr || gpu->struct_bytes != sizeof *gpu)
      return Status(Code::kInvalidArgument,
                    "hvd_use_gpu: not this library's hvd_gpu; library and Python package are of different versions.");
    return engine.UseGpu(*gpu);
  });
}

hvd_status hvd_gpu_place(int32_t* place) {
  *place = 0;
  return WithEngine([&](Engine& engine) {
    if (const auto* devices = engine.backends().devices()) *place = devices->place();
    return Status();
  });
}

const char* hvd_mpi_left(void) {
  static thread_local std::string why;
  // A rank that cannot be asked is taken for stuck in MPI.
  hvd::border::Guarded([] { why = hvd::backend::mpi::Job::AnyOutOfUse(); },
                       [](hvd_status, const char* text) { why = text; });
  return why.c_str();
}

hvd_status hvd_describe(char* buffer, size_t n, size_t* needed) {
  return WithEngine([&](Engine& engine) { return Copy(engine.DescribeJson(), buffer, n, needed); });
}

hvd_status hvd_dump(char* buffer, size_t n, size_t* needed) {
  return WithEngine([&](Engine& engine) { return Copy(engine.DumpJson(), buffer, n, needed); });
}

hvd_status hvd_get_parameters(hvd_parameters* out) {
  return WithEngine([&](Engine& engine) {
    const hvd::negotiation::Parameters p = engine.parameters();
    *out = {sizeof *out,       p.hierarchical_allreduce, p.hierarchical_allgather,
            p.torus_allreduce, p.fusion_threshold_bytes, p.cycle_time_ms};
    return Status();
  });
}

hvd_status hvd_set_parameters(const hvd_parameters* parameters) {
  return WithEngine([&](Engine& engine) {
    if (parameters == nullptr || parameters->struct_bytes != sizeof *parameters)
      return Status(Code::kInvalidArgument,
                    "hvd_set_parameters: not this library's hvd_parameters; library and Python package are of "
                    "different versions.");
    hvd::negotiation::Parameters p;
    p.fusion_threshold_bytes = parameters->fusion_threshold_bytes;
    p.cycle_time_ms = parameters->cycle_time_ms;
    p.hierarchical_allreduce = parameters->hierarchical_allreduce;
    p.hierarchical_allgather = parameters->hierarchical_allgather;
    p.torus_allreduce = parameters->torus_allreduce;
    return engine.ChangeParameters(p);
  });
}

hvd_status hvd_await_steps(int64_t n, double timeout_s, hvd_steps* out) {
  *out = {};
  return WithEngine([&](Engine& engine) {
    hvd::engine::Steps::Count count;
    Status status = engine.AwaitSteps(n, timeout_s, &count);
    *out = {count.steps, count.bytes, count.at_s};
    return status;
  });
}

int32_t hvd_dump_call_fd(void) {
  int32_t fd = -1;
  (void)hvd::border::Succeeds([&] { fd = hvd::engine::DumpCall::Descriptor(); });
  return fd;
}

hvd_status hvd_dump_on_signal(int32_t number) {
  return Guard([&] { return hvd::engine::DumpCall::OnSignal(number); });
}

hvd_status hvd_submit(const hvd_op* ops, int32_t n, uint32_t flags, hvd_handle* out) {
  *out = 0;
  return WithEngine([&](Engine& engine) {
    return HandleFor(engine, out, [&](auto* completion) { return engine.Submit(ops, n, flags, completion); });
  });
}

hvd_status hvd_refuse(int32_t type, int32_t process_set, const char* name, const char* reason) {
  return WithEngine([&](Engine& engine) {
    if (type < HVD_ALLREDUCE || type > HVD_BARRIER)
      return Status(Code::kInvalidArgument, "hvd_refuse: unknown operation type.");
    return engine.Refuse(static_cast<hvd::OpType>(type), process_set, name ? name : "",
                         reason ? reason : "no reason given.");
  });
}

hvd_status hvd_poll(hvd_handle handle) {
  return WithHandle(handle, [](Engine& engine, Completion& completion) {
    if (!completion.done()) engine.Poll();
    return StateOf(completion);
  });
}

hvd_status hvd_wait(hvd_handle handle, double timeout_s) {
  return WithHandle(handle, [&](Engine& engine, Completion& completion) {
    engine.Wait(completion, timeout_s);
    return StateOf(completion);
  });
}

hvd_status hvd_finish(hvd_handle handle, double timeout_s) { return hvd_finish_all(&handle, 1, timeout_s); }

hvd_status hvd_finish_all(const hvd_handle* handles, int32_t n, double timeout_s) {
  return WithEngine([&](Engine& engine) {
    const double deadline = hvd::engine::NowS() + timeout_s;
    for (int32_t i = 0; i < n; ++i) {
      const std::shared_ptr<Completion> completion = engine.handles().Find(handles[i]);
      if (!completion) return UnknownHandle(handles[i]);
      if (!completion->done()) engine.Wait(*completion, deadline - hvd::engine::NowS());
      HVD_TRY(StateOf(*completion));
    }
    for (int32_t i = 0; i < n; ++i) HVD_TRY(Release(engine, handles[i]));
    return Status();
  });
}

hvd_status hvd_run(const hvd_op* ops, int32_t n, double timeout_s, hvd_handle* out) {
  *out = 0;
  return WithEngine([&](Engine& engine) {
    std::shared_ptr<Completion> completion;
    HVD_TRY(engine.Run(ops, n, timeout_s, &completion));
    if (!completion) return Status();
    const bool done = completion->done();
    if (done && (!completion->status().ok() || !hvd::engine::MustBeKept(*completion))) return completion->status();
    HVD_TRY(HandleFor(engine, completion, out));
    if (done) return Status();
    return hvd::NotDoneYet();  // also when it has become so meanwhile: *out must be released
  });
}

hvd_status hvd_on_done(hvd_handle handle, hvd_done_fn fn, void* user) {
  return WithHandle(handle, [&](Engine&, Completion& completion) {
    if (!completion.AddCallback({fn, user})) {
      fn(user, static_cast<hvd_status>(completion.status().code()), completion.status().message().c_str());
    }
    return Status();
  });
}

hvd_status hvd_take_result(hvd_handle handle, int32_t index, hvd_result* out) {
  return WithHandle(handle,
                    [&](Engine&, Completion& completion) { return hvd::engine::TakeResult(completion, index, out); });
}

hvd_status hvd_order(hvd_handle handle, void* stream) {
  return WithHandle(handle, [&](Engine&, Completion& completion) { return hvd::engine::Order(completion, stream); });
}

hvd_status hvd_describe_result(hvd_handle handle, int32_t index, hvd_result* out) {
  return WithHandle(
      handle, [&](Engine&, Completion& completion) { return hvd::engine::DescribeResult(completion, index, out); });
}

hvd_status hvd_copy_result(hvd_handle handle, int32_t index, void* to, int64_t bytes, void* stream) {
  return WithHandle(handle, [&](Engine& engine, Completion& completion) {
    return hvd::engine::CopyResult(completion, index, engine.backends().devices(), to, bytes, stream);
  });
}

void hvd_result_free(void* owner) { delete static_cast<hvd::collective::Block*>(owner); }

hvd_status hvd_received_splits(hvd_handle handle, int32_t index, int32_t* splits, int32_t n) {
  return WithHandle(handle, [&](Engine&, Completion& completion) {
    hvd::engine::Outcome* outcome = nullptr;
    HVD_TRY(hvd::engine::OutcomeOf(completion, index, &outcome));
    const std::vector<int64_t>& rows = outcome->tensor.received_rows;
    if (n != static_cast<int32_t>(rows.size())) {
      return Status(Code::kInvalidArgument,
                    "room for " + std::to_string(n) + " splits, " + std::to_string(rows.size()) + " received.");
    }
    if (const auto most = std::max_element(rows.begin(), rows.end()); most != rows.end() && *most > INT32_MAX) {
      return Status(Code::kUnsupported, "member " + std::to_string(most - rows.begin()) + " of the process set sent " +
                                            std::to_string(*most) +
                                            " rows, more than the 2147483647 that a received split can hold; send rows "
                                            "with more elements, or several parts.");
    }
    std::copy(rows.begin(), rows.end(), splits);
    return Status();
  });
}

hvd_status hvd_result_value(hvd_handle handle, int64_t* value) {
  return WithHandle(handle, [&](Engine&, Completion& completion) {
    HVD_TRY(StateOf(completion));
    *value = completion.value;
    return Status();
  });
}

hvd_status hvd_release(hvd_handle handle) {
  return WithEngine([&](Engine& engine) { return Release(engine, handle); });
}

hvd_status hvd_process_set_add(const int32_t* ranks, int32_t n, int32_t by_members, hvd_handle* out) {
  *out = 0;
  return WithEngine([&](Engine& engine) {
    return HandleFor(engine, out, [&](auto* completion) {
      return engine.AddSet(std::vector<int>(ranks, ranks + n), completion, by_members != 0);
    });
  });
}

hvd_status hvd_process_set_remove(int32_t id, hvd_handle* out) {
  *out = 0;
  return WithEngine([&](Engine& engine) {
    if (id == 0) return Status(Code::kInvalidArgument, "process set 0 (all ranks) cannot be removed.");
    return HandleFor(engine, out, [&](auto* completion) { return engine.RemoveSet(id, completion); });
  });
}

hvd_status hvd_process_set_ranks(int32_t id, int32_t* ranks, int32_t* n) {
  return WithEngine([&](Engine& engine) {
    const std::vector<int> members = engine.sets().Ranks(id);
    if (members.empty())
      return Status(Code::kInvalidArgument, "process set " + std::to_string(id) + " does not exist.");
    return CopyInts(members, ranks, n);
  });
}

hvd_status hvd_process_set_list(int32_t* ids, int32_t* n) {
  return WithEngine([&](Engine& engine) { return CopyInts(engine.sets().Ids(), ids, n); });
}

hvd_status hvd_shared_alloc(int64_t bytes, void** out) {
  *out = nullptr;
  return WithEngine([&](Engine& engine) {
    const std::shared_ptr<hvd::transport::ResidentHeap> heap = engine.heap();
    if (!heap) return Status(Code::kUnsupported, "this rank shares no memory with others; use an ordinary tensor.");
    if (bytes < 0) return Status(Code::kInvalidArgument, "hvd_shared_alloc: negative size.");
    auto data = heap->Allocate(static_cast<size_t>(bytes));
    HVD_TRY(data.status());
    Library& lib = Lib();
    std::lock_guard<std::mutex> lock(lib.heaps_mutex);
    lib.heaps[*data] = heap;
    *out = *data;
    return Status();
  });
}

void hvd_shared_free(void* data) {
  // Without memory for its books the heap loses the piece, and nothing else.
  (void)hvd::border::Succeeds([data] {
    Library& lib = Lib();
    std::shared_ptr<hvd::transport::ResidentHeap> heap;
    {
      std::lock_guard<std::mutex> lock(lib.heaps_mutex);
      auto it = lib.heaps.find(data);
      if (it == lib.heaps.end()) return;
      heap = std::move(it->second);
      lib.heaps.erase(it);
    }
    heap->Free(data);
  });
}

hvd_status hvd_timeline_start(const char* path, int32_t mark_cycles) {
  return WithEngine([&](Engine& engine) { return engine.StartTimeline(path ? path : "", mark_cycles != 0); });
}
hvd_status hvd_timeline_stop(void) {
  return WithEngine([](Engine& engine) { return engine.StopTimeline(); });
}
void hvd_log_sink(hvd_log_fn fn) { hvd::SetLogSink(fn); }

}  // extern "C"
