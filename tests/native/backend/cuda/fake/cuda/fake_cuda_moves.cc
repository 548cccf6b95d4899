// What moves bytes: copies, memsets and the packing kernels. Sources are read when an operation begins and looked at
// again when it ends; in between, destinations hold poison.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "native/backend/cuda/fake/cuda/fake_cuda.h"
#include "native/backend/cuda/fake/cuda/fake_cuda_control.h"
#include "native/backend/cuda/fake/cuda/fake_cuda_memory.h"
#include "native/backend/cuda/fake/cuda/fake_cuda_streams.h"
#include "native/backend/cuda/fake/raw_memory.h"

namespace fake {
namespace {

using Bytes = std::vector<unsigned char>;

struct Move {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};
// What a move may find at its ends.
struct Sides {
  Side to = Side::kDevice, from = Side::kDevice;
  int device = kAnyDevice;
};

bool Overlap(const void* a, const void* b, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + bytes && second < first + bytes;
}

bool MayMove(const std::string& who, const std::vector<Move>& moves, const Sides& sides, const char* when) {
  for (const Move& move : moves) {
    for (const bool writes : {false, true}) {
      const std::string why =
          WhyNoAccess(writes ? move.to : move.from, move.bytes, writes ? sides.to : sides.from, sides.device);
      if (why.empty()) continue;
      Fault(who + (writes ? " writes " : " reads ") + why + when);
      return false;
    }
  }
  return true;
}

// Does the moves; `change` makes of what was read what is written. Unordered ones leave poison.
template <class Change>
void Perform(const std::string& who, const std::vector<Move>& moves, const Sides& sides, bool unordered,
             const Change& change) {
  if (!MayMove(who, moves, sides, "")) return;
  std::vector<Bytes> read;
  for (const Move& move : moves) {
    read.emplace_back(move.bytes);
    RawCopy(read.back().data(), move.from, move.bytes);
  }
  for (const Move& move : moves) RawPoison(move.to, move.bytes);
  if (unordered) return;
  Linger();
  if (!MayMove(who, moves, sides, " that was there when it began")) return;
  for (size_t i = 0; i < moves.size(); ++i) {
    const Move& move = moves[i];
    if (!RawIsPoison(move.to, move.bytes)) Fault(who + ": its destination was written by somebody else");
    bool written = false;
    for (const Move& other : moves) written |= Overlap(move.from, other.to, std::max(move.bytes, other.bytes));
    if (!written && !RawEqual(move.from, read[i].data(), move.bytes)) Fault(who + ": its source has changed meanwhile");
  }
  for (size_t i = 0; i < moves.size(); ++i) {
    change(read[i]);
    RawCopy(moves[i].to, read[i].data(), moves[i].bytes);
  }
}

std::vector<Access> AccessesOf(const std::vector<Move>& moves) {
  std::vector<Access> accesses;
  for (const Move& move : moves) {
    accesses.push_back({move.from, move.bytes, false});
    accesses.push_back({move.to, move.bytes, true});
  }
  return accesses;
}

int Copy(const char* name, const Move& move, const Sides& sides, void* handle) {
  Stream* stream = FindStream(handle);
  if (stream == nullptr) return NoStream(handle);
  std::string what = std::string(name) + " " + std::to_string(move.bytes);
  const bool from_host = sides.from == Side::kAnywhere;
  if (from_host && !WhyNoAccess(move.from, move.bytes, Side::kDevice, kAnyDevice).empty())
    what += " from memory that is not pinned";
  const std::vector<Move> moves = {move};
  const auto run = [=](bool unordered) { Perform(what, moves, sides, unordered, [](Bytes&) {}); };
  return Enqueue(*stream, what, run, AccessesOf(moves));
}

int Set(uint64_t address, uint32_t value, size_t value_bytes, size_t count, void* handle) {
  Stream* stream = FindStream(handle);
  if (stream == nullptr) return NoStream(handle);
  if (address % value_bytes != 0) return kInvalidValue;
  const size_t bytes = count * value_bytes;
  const std::string what = "memset " + std::to_string(bytes);
  void* to = reinterpret_cast<void*>(address);
  const auto run = [=](bool unordered) {
    for (const char* when : {"", " that was there when it began"}) {
      const std::string why = WhyNoAccess(to, bytes, Side::kDevice, kAnyDevice);
      if (!why.empty()) return Fault(what + " writes " + why + when);
      if (*when != 0) break;
      RawPoison(to, bytes);
      if (unordered) return;
      Linger();
    }
    if (!RawIsPoison(to, bytes)) Fault(what + ": its destination was written by somebody else");
    RawFill(to, value, value_bytes, bytes);
  };
  return Enqueue(*stream, what, run, {{to, bytes, true}});
}

// ---- kernels

struct Entry {
  uint64_t from = 0, to = 0;
  uint32_t bytes = 0, first_block = 0;
};
static_assert(sizeof(Entry) == 24);
constexpr uint32_t kMostEntries = 168;

template <class T, class ToFloat, class FromFloat>
void Scale(Bytes& data, float scale, ToFloat to_float, FromFloat from_float) {
  for (size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, &data[at], sizeof value);
    value = from_float(to_float(value) * scale);
    std::memcpy(&data[at], &value, sizeof value);
  }
}
void ScaleAs(const std::string& kernel, Bytes& data, float scale) {
  const auto same = [](float value) { return value; };
  if (kernel == "pack_f32") Scale<float>(data, scale, same, same);
  if (kernel == "pack_f16") Scale<uint16_t>(data, scale, hvd::FloatFromHalf, hvd::HalfFromFloat);
  if (kernel == "pack_bf16") Scale<uint16_t>(data, scale, hvd::FloatFromBfloat16, hvd::Bfloat16FromFloat);
}

constexpr const char* kKernels[] = {"pack_f32", "pack_f16", "pack_bf16", "pack_bytes"};  // their addresses: handles

// Never destroyed: streams still work while the process ends.
struct Modules {
  std::mutex mutex;  // guards all of this
  std::map<void*, std::string> texts;
};
Modules& TheModules() {
  static auto* const kModules = new Modules;
  return *kModules;
}

// As on a real GPU (docs/gpu.md), modules are loaded while the device has nothing to do. Nothing says that they must
// be.
int Load(void** made, const void* image) {
  WaitForDevice(current_device, /*knows=*/false);
  const std::string text = static_cast<const char*>(image);
  if (text.find(".version") == std::string::npos || text.find(".target") == std::string::npos) return kInvalidPtx;
  std::lock_guard<std::mutex> lock(TheModules().mutex);
  static uintptr_t modules = 0x2000;
  *made = reinterpret_cast<void*>(modules += 16);
  TheModules().texts[*made] = text;
  return kSuccess;
}

// Empty: they are right. Otherwise what a device would make of them.
std::string WhyWrong(const std::string& kernel, const std::vector<Entry>& entries, unsigned blocks) {
  const uint32_t element = kernel == "pack_bytes" ? 1 : kernel == "pack_f32" ? 4 : 2;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].bytes % element != 0) return "an entry ends within an element";
    if (i == 0 && entries[i].first_block != 0) return "nobody works on the first block";
    if (i > 0 && entries[i].first_block < entries[i - 1].first_block) return "first blocks go down";
    if (entries[i].bytes > 0 && entries[i].first_block >= blocks) return "an entry begins behind the last block";
  }
  return "";
}

}  // namespace
}  // namespace fake

using namespace fake;  // NOLINT: the driver's functions have to be global

EXPORT int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  ENTER_IN_CONTEXT();
  return Copy("copy to host", {to, reinterpret_cast<void*>(from), bytes}, {Side::kAnywhere, Side::kDevice}, stream);
}
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  ENTER_IN_CONTEXT();
  return Copy("copy to device", {reinterpret_cast<void*>(to), from, bytes}, {Side::kDevice, Side::kAnywhere}, stream);
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  ENTER_IN_CONTEXT();
  return Copy("copy", {reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes}, {}, stream);
}
EXPORT int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  ENTER();
  return Copy("copy", {reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes},
              {Side::kAnywhere, Side::kAnywhere}, stream);
}
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void* stream) {
  ENTER();
  return Set(to, value, 1, count, stream);
}
EXPORT int cuMemsetD16Async(uint64_t to, unsigned short value, size_t count, void* stream) {
  ENTER();
  return Set(to, value, 2, count, stream);
}
EXPORT int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void* stream) {
  ENTER_IN_CONTEXT();
  return Set(to, value, 4, count, stream);
}

EXPORT int cuModuleLoadData(void** made, const void* image) {
  ENTER_IN_CONTEXT();
  return Load(made, image);
}
EXPORT int cuModuleLoadDataEx(void** made, const void* image, unsigned, int*, void**) {
  ENTER_IN_CONTEXT();
  return Load(made, image);
}
EXPORT int cuModuleUnload(void* module) {
  ENTER();
  std::lock_guard<std::mutex> lock(TheModules().mutex);
  return TheModules().texts.erase(module) > 0 ? kSuccess : kInvalidHandle;
}
EXPORT int cuModuleGetFunction(void** made, void* handle, const char* name) {
  ENTER();
  Modules& modules = TheModules();
  std::lock_guard<std::mutex> lock(modules.mutex);
  const auto module = modules.texts.find(handle);
  if (module == modules.texts.end()) return kInvalidHandle;
  const std::string& text = module->second;
  if (text.find(".entry " + std::string(name) + "(") == std::string::npos) return kNotFound;
  for (const char* const& known : kKernels) {
    if (std::strcmp(known, name) != 0) continue;
    *made = const_cast<const char**>(&known);
    return kSuccess;
  }
  return kNotFound;
}
EXPORT int cuLaunchKernel(void* function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads,
                          unsigned threads_y, unsigned threads_z, unsigned, void* handle, void** parameters, void**) {
  ENTER();
  Stream* stream = FindStream(handle);
  if (stream == nullptr) return NoStream(handle);
  std::string kernel;
  for (const char* const& known : kKernels) {
    if (&known == function) kernel = known;
  }
  if (kernel.empty()) return kInvalidHandle;
  if (blocks == 0 || threads == 0 || threads > 1024 || blocks_y * blocks_z * threads_y * threads_z != 1)
    return kInvalidValue;
  uint32_t count = 0;
  std::memcpy(&count, parameters[1], sizeof count);
  if (count > kMostEntries) return kInvalidValue;
  std::vector<Entry> entries(count);
  if (count > 0) std::memcpy(entries.data(), parameters[0], count * sizeof(Entry));
  float scale = 1;
  if (kernel != "pack_bytes") std::memcpy(&scale, parameters[2], sizeof scale);
  const std::string what = kernel + " " + std::to_string(count);
  const std::string wrong = WhyWrong(kernel, entries, blocks);
  if (!wrong.empty()) Fault(what + ": " + wrong);
  std::vector<Move> moves;
  for (const Entry& e : entries)
    moves.push_back({reinterpret_cast<void*>(e.to), reinterpret_cast<void*>(e.from), e.bytes});
  const Sides sides{Side::kDevice, Side::kDevice, DeviceOf(*stream)};
  const auto run = [=](bool unordered) {
    Perform(what, moves, sides, unordered || !wrong.empty(), [&](Bytes& data) { ScaleAs(kernel, data, scale); });
  };
  return Enqueue(*stream, what, run, AccessesOf(moves));
}
