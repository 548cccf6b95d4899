#include "native/backend/cuda/fake/cuda/fake_cuda_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "native/backend/cuda/fake/cuda/fake_cuda.h"
#include "native/backend/cuda/fake/cuda/fake_cuda_control.h"
#include "native/backend/cuda/fake/cuda/fake_cuda_streams.h"
#include "native/backend/cuda/fake/raw_memory.h"

namespace fake {

std::atomic<bool> gives_again_at_once{false};

namespace {

enum class Kind { kDevice, kPinned, kRegistered };
enum class State {
  kComing,  // by cuMemAllocAsync: only for what comes after it on its stream
  kThere,
  kFreed,  // kept for a while, so that who still uses it is seen
};
struct Past {
  uintptr_t begin = 0, end = 0;
  bool writes = false;
  size_t stream = 0;
  uint64_t time = 0;  // of that stream
};
struct Block {
  size_t bytes = 0;
  Kind kind = Kind::kDevice;
  State state = State::kThere;
  int device = 0;
  std::vector<Past> past;  // accesses that later ones must be ordered after
};

constexpr size_t kMostPast = 1000;  // of a block
constexpr size_t kMostFreed = size_t{32} << 20;
constexpr size_t kMostBytes = size_t{80} << 30;  // of one block: more is out of memory

// Never destroyed: streams still work while the process ends.
struct Memory {
  std::mutex mutex;                   // guards all of this
  std::map<uintptr_t, Block> blocks;  // by address
  std::deque<uintptr_t> freed;        // oldest first
  size_t freed_bytes = 0;
  // By address, where freed blocks are given again at once: the stream of the allocation; those whose stream has not
  // come to their end.
  std::mutex pool;  // one call at a time: what is let go is on its stream, too; locked before the other one
  std::map<uintptr_t, void*> given_on;
  std::set<uintptr_t> let_go;
};
Memory& TheMemory() {
  static auto* const kMemory = new Memory;
  return *kMemory;
}
using Lock = std::lock_guard<std::mutex>;

uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
void* PointerTo(uintptr_t address) { return reinterpret_cast<void*>(address); }

// With the lock: the block in which an address lies, or blocks.end().
std::map<uintptr_t, Block>::iterator Around(uintptr_t address) {
  auto& blocks = TheMemory().blocks;
  auto next = blocks.upper_bound(address);
  if (next == blocks.begin()) return blocks.end();
  --next;
  return address < next->first + next->second.bytes ? next : blocks.end();
}

void* New(size_t bytes, Kind kind, State state) {
  if (bytes > kMostBytes) return nullptr;
  const size_t whole = (bytes + 255) / 256 * 256;
  void* pointer = std::aligned_alloc(256, whole);
  if (pointer == nullptr) return nullptr;
  RawPoison(pointer, whole);
  Lock lock(TheMemory().mutex);
  TheMemory().blocks[AddressOf(pointer)] = {bytes, kind, state, current_device, {}};
  return pointer;
}

// Takes the block that begins at an address out of use.
bool Free(uintptr_t address, Kind kind) {
  Memory& memory = TheMemory();
  Lock lock(memory.mutex);
  const auto found = memory.blocks.find(address);
  if (found == memory.blocks.end() || found->second.kind != kind || found->second.state == State::kFreed) return false;
  if (kind == Kind::kRegistered) {  // somebody else's
    memory.blocks.erase(found);
    return true;
  }
  found->second.state = State::kFreed;
  RawPoison(PointerTo(address), found->second.bytes);
  memory.freed.push_back(address);
  memory.freed_bytes += found->second.bytes;
  while (memory.freed_bytes > kMostFreed) {
    const auto oldest = memory.blocks.find(memory.freed.front());
    memory.freed.pop_front();
    memory.freed_bytes -= oldest->second.bytes;
    std::free(PointerTo(oldest->first));
    memory.blocks.erase(oldest);
  }
  return true;
}

// A block that is not freed yet but let go, as new; null: there is none.
void* Again(size_t bytes, void* stream) {
  Memory& memory = TheMemory();
  Lock lock(memory.mutex);
  for (const uintptr_t address : memory.let_go) {
    Block& block = memory.blocks[address];
    if (block.bytes != bytes || memory.given_on[address] != stream) continue;
    memory.let_go.erase(address);
    block.state = State::kComing;
    RawPoison(PointerTo(address), bytes);
    return PointerTo(address);
  }
  return nullptr;
}
void NoteGiven(uintptr_t address, void* stream) {
  Lock lock(TheMemory().mutex);
  TheMemory().given_on[address] = stream;
}
void LetGo(uintptr_t address) {
  Lock lock(TheMemory().mutex);
  if (gives_again_at_once) TheMemory().let_go.insert(address);
}
bool GivenAgain(uintptr_t address) {
  Lock lock(TheMemory().mutex);
  return gives_again_at_once && TheMemory().let_go.erase(address) == 0;
}

size_t SizeOfBlock(uintptr_t address) {
  Lock lock(TheMemory().mutex);
  const auto found = TheMemory().blocks.find(address);
  return found == TheMemory().blocks.end() ? 0 : found->second.bytes;
}

int FreeAndWait(uintptr_t address, Kind kind, const char* function) {
  int device = 0;
  {
    Lock lock(TheMemory().mutex);
    const auto found = TheMemory().blocks.find(address);
    if (found == TheMemory().blocks.end() || found->second.kind != kind) {
      return kInvalidValue;
    }
    device = found->second.device;
  }
  Record(std::string("host sync: ") + function);
  WaitForDevice(device);
  return Free(address, kind) ? kSuccess : kInvalidValue;
}

}  // namespace

std::string WhyNoAccess(const void* pointer, size_t bytes, Side side, int device) {
  if (bytes == 0) return "";
  Lock lock(TheMemory().mutex);
  const auto found = Around(AddressOf(pointer));
  if (found == TheMemory().blocks.end()) return side == Side::kAnywhere ? "" : "memory that no device knows";
  const Block& block = found->second;
  if (block.state == State::kFreed) return "freed memory";
  if (block.state == State::kComing) return "memory whose allocation it has not waited for";
  if (AddressOf(pointer) + bytes > found->first + block.bytes) return "memory behind the end of a block";
  if (block.kind == Kind::kDevice && device != kAnyDevice && block.device != device) return "memory of another device";
  return "";
}

std::string NoteAccesses(const std::vector<Access>& accesses, size_t stream, const Clock& clock) {
  std::string wrong;
  std::vector<std::pair<Block*, Past>> news;
  Lock lock(TheMemory().mutex);
  for (const Access& access : accesses) {
    const auto found = access.bytes == 0 ? TheMemory().blocks.end() : Around(AddressOf(access.address));
    if (found == TheMemory().blocks.end()) continue;
    const Past now{AddressOf(access.address), AddressOf(access.address) + access.bytes, access.writes, stream,
                   clock[stream]};
    std::vector<Past>& past = found->second.past;
    for (const Past& before : past) {
      const bool conflict = (before.writes || now.writes) && before.begin < now.end && now.begin < before.end;
      const uint64_t known = before.stream < clock.size() ? clock[before.stream] : 0;
      if (conflict && known < before.time)
        wrong = std::string(now.writes ? "writes" : "reads") + " what another stream " +
                (before.writes ? "writes" : "reads") + ", and waits for no event after it";
    }
    // What comes after this access comes after all that it came after.
    const auto covered = [&](const Past& before) {
      const bool within = now.begin <= before.begin && before.end <= now.end;
      return within && (now.writes || (!before.writes && before.stream == now.stream));
    };
    past.erase(std::remove_if(past.begin(), past.end(), covered), past.end());
    if (past.size() >= kMostPast) past.erase(past.begin());
    news.emplace_back(&found->second, now);
  }
  for (auto& [block, now] : news) block->past.push_back(now);  // an operation does not conflict with itself
  return wrong;
}

}  // namespace fake

using namespace fake;  // NOLINT: the driver's functions have to be global

EXPORT int cuMemAlloc_v2(uint64_t* made, size_t bytes) {
  ENTER_IN_CONTEXT();
  if (bytes == 0) return kInvalidValue;
  void* pointer = New(bytes, Kind::kDevice, State::kThere);
  *made = AddressOf(pointer);
  return pointer == nullptr ? kOutOfMemory : kSuccess;
}
// Like the driver, waits until the device has done all that it was given.
EXPORT int cuMemFree_v2(uint64_t address) {
  ENTER();
  return address == 0 ? kSuccess : FreeAndWait(address, Kind::kDevice, __func__);
}
EXPORT int cuMemAllocAsync(uint64_t* made, size_t bytes, void* handle) {
  ENTER_IN_CONTEXT();
  Stream* stream = FindStream(handle);
  if (stream == nullptr) return NoStream(handle);
  if (bytes == 0) return kInvalidValue;
  Lock pool(TheMemory().pool);
  void* pointer = Again(bytes, handle);
  if (pointer == nullptr) pointer = New(bytes, Kind::kDevice, State::kComing);
  if (pointer == nullptr) return kOutOfMemory;
  *made = AddressOf(pointer);
  NoteGiven(*made, handle);
  const auto come = [address = *made](bool) {
    Lock lock(TheMemory().mutex);
    TheMemory().blocks[address].state = State::kThere;
  };
  return Enqueue(*stream, "allocate " + std::to_string(bytes), come, {{pointer, bytes, true}});
}
EXPORT int cuMemFreeAsync(uint64_t address, void* handle) {
  ENTER();
  Stream* stream = FindStream(handle);
  if (stream == nullptr) return NoStream(handle);
  const auto free = [address](bool) {
    if (!GivenAgain(address) && !Free(address, Kind::kDevice)) Fault("cuMemFreeAsync of what is no block");
  };
  Lock pool(TheMemory().pool);
  LetGo(address);
  return Enqueue(*stream, "free", free, {{PointerTo(address), SizeOfBlock(address), true}});
}
EXPORT int cuMemHostAlloc(void** made, size_t bytes, unsigned) {
  ENTER_IN_CONTEXT();
  if (bytes == 0) return kInvalidValue;
  *made = New(bytes, Kind::kPinned, State::kThere);
  return *made == nullptr ? kOutOfMemory : kSuccess;
}
EXPORT int cuMemFreeHost(void* pointer) {
  ENTER();
  return FreeAndWait(AddressOf(pointer), Kind::kPinned, __func__);
}
EXPORT int cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned) {
  ENTER_IN_CONTEXT();
  if (bytes == 0) return kInvalidValue;
  Lock lock(TheMemory().mutex);
  const auto next = TheMemory().blocks.lower_bound(AddressOf(pointer));
  if (Around(AddressOf(pointer)) != TheMemory().blocks.end() ||
      (next != TheMemory().blocks.end() && next->first < AddressOf(pointer) + bytes))
    return kAlreadyRegistered;
  TheMemory().blocks[AddressOf(pointer)] = {bytes, Kind::kRegistered, State::kThere, current_device, {}};
  return kSuccess;
}
EXPORT int cuMemHostUnregister(void* pointer) {
  ENTER();
  return Free(AddressOf(pointer), Kind::kRegistered) ? kSuccess : kNotRegistered;
}
EXPORT int cuMemHostGetDevicePointer_v2(uint64_t* there, void* pointer, unsigned) {
  ENTER_IN_CONTEXT();
  *there = AddressOf(pointer);
  return WhyNoAccess(pointer, 1, Side::kDevice, kAnyDevice).empty() ? kSuccess : kInvalidValue;
}
EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  ENTER_IN_CONTEXT();
  *free_bytes = *total_bytes = kMostBytes;
  return kSuccess;
}
// 2: CU_POINTER_ATTRIBUTE_MEMORY_TYPE, of which 1 is the host's and 2 the device's; 9: DEVICE_ORDINAL.
EXPORT int cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  ENTER();
  Lock lock(TheMemory().mutex);
  const auto found = Around(address);
  if (found == TheMemory().blocks.end() || found->second.state == State::kFreed) return kInvalidValue;
  if (attribute != 2 && attribute != 9) return kInvalidValue;
  const int type = found->second.kind == Kind::kDevice ? 2 : 1;
  *static_cast<int*>(value) = attribute == 2 ? type : found->second.device;
  return kSuccess;
}

EXPORT int fake_cuda_may_access(const void* address, size_t bytes, int device, const char* who) {
  const std::string why = WhyNoAccess(address, bytes, Side::kDevice, device);
  if (!why.empty()) Fault(std::string(who) + ": " + why);
  return why.empty() ? 1 : 0;
}
EXPORT int fake_cuda_blocks() {
  Lock lock(TheMemory().mutex);
  int n = 0;
  for (const auto& [address, block] : TheMemory().blocks) n += block.state != State::kFreed;
  return n;
}
