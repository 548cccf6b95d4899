// Collectives as operations of MXNet's engine, which orders them behind what makes their arrays and before what reads
// them. The engine calls hvd_mxnet_run on a thread of its own, which submits and returns; the core's completion tells
// the engine. Declared here by hand, because there is one last MXNet: what it passes to an asynchronous function, and
// how its arrays begin. See docs/design/0037.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "border/border.h"
#include "frameworks/wording.h"
#include "horovod/horovod.h"

namespace hvd::frameworks::mxnet {
namespace {

// MXNet's CallbackOnComplete.
struct OnComplete {
  void (*function)(void* engine, void* parameter, const void* error) = nullptr;
  void* engine = nullptr;
  void* parameter = nullptr;
};

using CopyArray = int (*)(void* array, void** copy);
using FreeArray = int (*)(void* array);
using ArrayData = int (*)(void* array, void** address);
// An mxnet::NDArray, which takes 224 bytes, as a function returns it: constructed in memory of the caller's, because it
// cannot be copied as bytes.
struct ReturnedArray {
  ReturnedArray(const ReturnedArray&) = delete;
  alignas(std::max_align_t) std::byte bytes[512];
};
using UsualCopy = ReturnedArray (*)(const void* array);
using UsualPlace = void (*)(void* memory);
using MakeError = void (*)(void* error, const char* text);
using DropError = void (*)(void* error);
constexpr size_t kErrorBytes = 64;  // more than a std::runtime_error takes

// Which names have operations in the engine: the next one of a name waits for it, in the order of the program.
class NamesInFlight {
 public:
  using Name = std::pair<int32_t, std::string>;  // of a process set

  // False: one of them was not free within timeout_s.
  bool Take(const std::vector<Name>& names, double timeout_s) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto free = [&] {
      return std::none_of(names.begin(), names.end(), [&](const Name& name) { return taken_.count(name) > 0; });
    };
    if (!given_back_.wait_for(lock, std::chrono::duration<double>(timeout_s), free)) return false;
    std::set<Name> own(names.begin(), names.end());
    taken_.merge(own);
    return true;
  }

  void GiveBack(const std::vector<Name>& names) noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Name& name : names) taken_.erase(name);
    given_back_.notify_all();
  }

 private:
  std::mutex mutex_;  // guards all below
  std::condition_variable given_back_;
  std::set<Name> taken_;
};

// Leaked on purpose: the engine may be at work while static destructors run.
NamesInFlight& Names() {
  static auto* const kNames = new NamesInFlight;
  return *kNames;
}

// A handle of an array of MXNet's, of our own.
class Array {
 public:
  Array(void* handle, const hvd_mxnet_functions& mxnet) : free_(reinterpret_cast<FreeArray>(mxnet.free_array)) {
    if (handle != nullptr && reinterpret_cast<CopyArray>(mxnet.copy_array)(handle, &handle_) != 0)
      throw std::bad_alloc();
  }
  Array(Array&& other) noexcept : free_(other.free_), handle_(std::exchange(other.handle_, nullptr)) {}
  Array& operator=(Array&&) = delete;
  ~Array() {
    if (handle_ != nullptr) (void)free_(handle_);
  }

  // Convolutions leave results, and weights, in layouts of oneDNN's. MXNDArrayGetData has the engine undo that, and
  // waits: an operation of the engine would wait for itself. So the next two come first.

  // For an array that is read: others may read it at the same moment, so its memory stays as it is.
  void TakeUsualCopy(const hvd_mxnet_functions& mxnet) {
    if (handle_ == nullptr || mxnet.usual_copy == nullptr) return;
    // Freed by MXNet: in all C++ libraries of Linux, memory for objects is malloc's.
    void* copy = new ReturnedArray(reinterpret_cast<UsualCopy>(mxnet.usual_copy)(handle_));
    (void)free_(std::exchange(handle_, copy));
  }

  // For an array that is written, and that nobody else uses. An array's first word is where its memory is described.
  void MakeUsual(const hvd_mxnet_functions& mxnet) const {
    if (handle_ == nullptr || mxnet.usual_place == nullptr) return;
    reinterpret_cast<UsualPlace>(mxnet.usual_place)(*static_cast<void**>(handle_));
  }

  // Where the elements are; only an operation that the engine runs may ask. False: there is no memory.
  bool Find(const hvd_mxnet_functions& mxnet, void** address) const noexcept {
    *address = nullptr;
    return handle_ == nullptr || reinterpret_cast<ArrayData>(mxnet.array_data)(handle_, address) == 0;
  }

 private:
  FreeArray free_;
  void* handle_ = nullptr;
};

class Request {
 public:
  Request(const hvd_op* ops, size_t n, const hvd_mxnet_functions& mxnet) : mxnet_(mxnet), ops_(ops, ops + n) {
    for (const hvd_op& op : ops_) {
      names_.emplace_back(op.process_set, op.name);
      shapes_.emplace_back(op.shape, op.shape + op.ndim);
      inputs_.emplace_back(const_cast<void*>(op.input), mxnet);
      outputs_.emplace_back(op.output, mxnet);
    }
    for (size_t i = 0; i < n; ++i) {
      ops_[i].name = names_[i].second.c_str();
      ops_[i].shape = shapes_[i].data();
    }
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (!holds_names_) return;
    if (!has_run_) Refuse("an operation of MXNet's that this one needs has failed on that rank");
    Names().GiveBack(names_);
  }

  bool TakeNames(double timeout_s) { return holds_names_ = Names().Take(names_, timeout_s); }

  void Run(const OnComplete& on_complete) noexcept {
    has_run_ = true;
    on_complete_ = on_complete;
    if (!FindArrays()) {
      Refuse("MXNet has no memory for the tensor on that rank");
      return Complete(HVD_RESOURCE, "MXNet has no memory for a tensor of this operation.");
    }
    const auto n = static_cast<int32_t>(ops_.size());
    if (const hvd_status refused = hvd_submit(ops_.data(), n, HVD_SUBMIT_AT_ONCE, &handle_); refused != HVD_OK)
      return Complete(refused, hvd_last_error());
    const auto complete = [](void* self, hvd_status status, const char* message) {
      static_cast<Request*>(self)->Complete(status, message);
    };
    if (hvd_on_done(handle_, complete, this) == HVD_OK) return;
    // Without memory for the callback: the core uses the tensors until this is done. Or shut down in between.
    hvd_status status = hvd_poll(handle_);
    for (; status == HVD_IN_PROGRESS; status = hvd_poll(handle_)) std::this_thread::yield();
    Complete(status, status == HVD_OK ? "" : hvd_last_error());
  }

 private:
  bool FindArrays() noexcept {
    // An input that is an output, too, has the usual layout by then.
    const auto make_usual = [&] {
      for (const Array& output : outputs_) output.MakeUsual(mxnet_);
      for (Array& input : inputs_) input.TakeUsualCopy(mxnet_);
    };
    if (!border::Succeeds(make_usual)) return false;
    for (size_t i = 0; i < ops_.size(); ++i) {
      void* input = nullptr;
      if (!inputs_[i].Find(mxnet_, &input) || !outputs_[i].Find(mxnet_, &ops_[i].output)) return false;
      ops_[i].input = input;
    }
    return true;
  }

  // A group fails as a whole with its first tensor.
  void Refuse(const char* why) noexcept {
    (void)hvd_refuse(ops_[0].type, ops_[0].process_set, names_[0].second.c_str(), why);
  }

  void Complete(hvd_status status, const char* message) noexcept {
    if (handle_ != 0) (void)hvd_release(handle_);
    Names().GiveBack(names_);
    holds_names_ = false;
    const OnComplete on_complete = on_complete_;
    const hvd_mxnet_functions mxnet = mxnet_;
    if (status == HVD_OK) return on_complete.function(on_complete.engine, on_complete.parameter, nullptr);
    const Failure failure = FailureFor(status);
    alignas(std::max_align_t) std::byte error[kErrorBytes];
    const auto make = [&](const char* text) { reinterpret_cast<MakeError>(mxnet.make_error)(error, text); };
    border::Guarded([&] { make(InXlasWords(failure, message).c_str()); },
                    [&](hvd_status, const char* why) {
                      char text[100];
                      (void)std::snprintf(text, sizeof text, "Horovod %s: %s", failure.name, why);
                      make(static_cast<const char*>(text));
                    });
    // The engine copies the error, and drops this request.
    on_complete.function(on_complete.engine, on_complete.parameter, static_cast<const void*>(error));
    reinterpret_cast<DropError>(mxnet.drop_error)(error);
  }

  const hvd_mxnet_functions mxnet_;
  std::vector<hvd_op> ops_;
  std::vector<NamesInFlight::Name> names_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<Array> inputs_, outputs_;
  OnComplete on_complete_;
  hvd_handle handle_ = 0;
  bool holds_names_ = false;
  bool has_run_ = false;
};

hvd_status Prepare(const hvd_op* ops, int32_t n, const hvd_mxnet_functions* mxnet, double timeout_s, void** request) {
  if (n < 1 || mxnet->struct_bytes != sizeof(hvd_mxnet_functions)) return HVD_INVALID_ARGUMENT;
  hvd_status status = HVD_OK;
  border::Guarded(
      [&] {
        auto made = std::make_unique<Request>(ops, static_cast<size_t>(n), *mxnet);
        if (made->TakeNames(timeout_s))
          *request = made.release();
        else
          status = HVD_IN_PROGRESS;
      },
      [&](hvd_status code, const char*) { status = code; });
  return status;
}

}  // namespace
}  // namespace hvd::frameworks::mxnet

extern "C" hvd_status hvd_mxnet_prepare(const hvd_op* ops, int32_t n, const hvd_mxnet_functions* mxnet,
                                        double timeout_s, void** request) {
  return hvd::frameworks::mxnet::Prepare(ops, n, mxnet, timeout_s, request);
}

extern "C" void hvd_mxnet_run(void* /*run_context*/, void* on_complete, void* request) {
  using hvd::frameworks::mxnet::OnComplete;
  static_cast<hvd::frameworks::mxnet::Request*>(request)->Run(*static_cast<const OnComplete*>(on_complete));
}

extern "C" void hvd_mxnet_drop(void* request) { delete static_cast<hvd::frameworks::mxnet::Request*>(request); }
