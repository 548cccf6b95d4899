#include "backend/cuda/packing/packing.h"

#include <algorithm>

#include "backend/cuda/driver/hiprtc.h"
#include "base/text.h"

namespace hvd::backend::cuda {
namespace {

constexpr size_t kLongest = size_t{1} << 30;  // of an entry; a multiple of the chunk
constexpr size_t kLogShown = 500;
static_assert(kLongest % kPackChunk == 0);

// The table of one launch.
class Table {
 public:
  // False: it is full.
  bool Add(const Move& move) {
    if (used_ == kPackEntries) return false;
    const auto bytes = static_cast<uint32_t>(move.bytes);
    entries_[used_++] = {AddressOf(move.from), AddressOf(move.to), bytes, blocks_};
    blocks_ += (bytes + kPackChunk - 1) / kPackChunk;
    return true;
  }
  Status Launch(const Context& context, Handle kernel, float factor, Handle stream) {
    if (used_ == 0) return Status();
    // The driver copies them before it returns.
    void* parameters[] = {entries_, &used_, &factor};
    HVD_TRY(CallOn(context, stream, context.driver()->launch_kernel, kernel, blocks_, 1, 1, kPackThreads, 1, 1, 0,
                   stream, parameters, nullptr));
    used_ = blocks_ = 0;
    return Status();
  }

 private:
  PackEntry entries_[kPackEntries];
  uint32_t used_ = 0, blocks_ = 0;
};

}  // namespace

bool Packing::CanScale(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

Packing::Kernel Packing::KernelFor(DType dtype, float factor) {
  if (factor == 1) return kBytes;
  if (dtype == DType::kFloat32) return kF32;
  return dtype == DType::kFloat16 ? kF16 : kBf16;
}

Status Packing::Prepare() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!prepared_) failure_ = Compile();
  prepared_ = true;
  return failure_;
}

Status Packing::Compile() {
  const Driver& driver = context_->driver();
  const Current current(*context_);
  const Result<Handle> module = driver.platform().kind == Platform::kHip ? LoadHip() : LoadPtx();
  if (!module.ok()) {
    return Status(Code::kBackendUnavailable, "the driver does not compile the packing kernels for " + context_->Text() +
                                                 ": " + module.status().message());
  }
  const char* const names[kKernels] = {"pack_bytes", "pack_f32", "pack_f16", "pack_bf16"};
  for (int k = 0; k < kKernels; ++k) HVD_TRY(driver.Call(driver->module_get_function, &kernels_[k], *module, names[k]));
  return Status();
}

Result<Handle> Packing::LoadPtx() const {
  const Driver& driver = context_->driver();
  char log[4096] = {};
  int options[] = {5, 6};  // CU_JIT_ERROR_LOG_BUFFER and its size
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  Handle module = nullptr;
  const Status loaded = driver.Call(driver->module_load_data, &module, PackingPtx().c_str(), 2, options, values);
  if (!loaded.ok()) return Status(loaded.code(), loaded.message() + " " + Shortened(log, kLogShown));
  return module;
}

Result<Handle> Packing::LoadHip() const {
  const Driver& driver = context_->driver();
  const Result<std::string> code = CompileByHiprtc(driver, context_->standing().device, PackingHip());
  HVD_TRY(code.status());
  Handle module = nullptr;
  HVD_TRY(driver.Call(driver->module_load_data, &module, (*code).data(), 0, nullptr, nullptr));
  return module;
}

Status Packing::Launch(const std::vector<Move>& moves, DType dtype, double factor, Handle stream) {
  const auto rounded = static_cast<float>(factor);
  if (rounded != 1 && !CanScale(dtype)) {
    return Status(Code::kUnsupported, std::string("the packing kernels do not multiply ") + NameOf(dtype) + ".");
  }
  HVD_TRY(Prepare());
  const Handle kernel = kernels_[KernelFor(dtype, rounded)];
  Table table;
  for (const Move& move : moves) {
    for (size_t at = 0; at < move.bytes; at += kLongest) {
      const Move part = {move.from + at, move.to + at, std::min(kLongest, move.bytes - at)};
      if (table.Add(part)) continue;
      HVD_TRY(table.Launch(*context_, kernel, rounded, stream));
      (void)table.Add(part);
    }
  }
  return table.Launch(*context_, kernel, rounded, stream);
}

}  // namespace hvd::backend::cuda
