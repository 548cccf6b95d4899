#include "backend/cuda/memory.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

namespace hvd::backend::cuda {
namespace {

// CU_MEMHOSTALLOC_PORTABLE and DEVICEMAP, which HIP numbers alike: pinned for all contexts, and for kernels. CUDA maps
// it in any case; HIP's memory that is portable alone is not coherent, and what a kernel stores may stay in its caches.
constexpr unsigned kPinnedFlags = 1 | 2;
constexpr size_t kPinnedAlign = 64;          // the processor's cache lines
constexpr size_t kGrowth = size_t{2} << 20;  // what the driver takes from the device at once

size_t RoundedUp(size_t bytes) { return (std::max<size_t>(bytes, 1) + kGrowth - 1) / kGrowth * kGrowth; }

std::string Megabytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace

Result<std::shared_ptr<DeviceMemory>> DeviceMemory::Make(std::shared_ptr<EventPool> events) {
  const std::shared_ptr<DeviceMemory> memory(new DeviceMemory(std::move(events)));
  for (std::unique_ptr<Stream>* stream : {&memory->giving_, &memory->taking_}) {
    Result<std::unique_ptr<Stream>> made = Stream::Make(memory->events_);
    HVD_TRY(made.status());
    *stream = std::move(*made);
  }
  return memory;
}

DeviceMemory::~DeviceMemory() {
  if (!leaving_.empty() && taking_->Synchronize().ok()) FreeUnused();
}

Result<std::unique_ptr<Block>> DeviceMemory::Allocate(size_t bytes, std::shared_ptr<DeviceEvent>* ready) {
  DeviceAddress address = 0;
  const Status obtained = Obtain(bytes, &address, ready);
  if (obtained.code() == Code::kResource) return NoMemory(bytes, obtained);
  HVD_TRY(obtained);
  return std::make_unique<Block>(PointerTo(address), bytes, shared_from_this());
}

Result<std::unique_ptr<Block>> DeviceMemory::Allocate(size_t bytes) {
  std::shared_ptr<DeviceEvent> ready;
  Result<std::unique_ptr<Block>> block = Allocate(bytes, &ready);
  HVD_TRY(block.status());
  if (context().has_memory_pools()) HVD_TRY(giving_->Synchronize());
  return block;
}

// An allocation is a piece of work of a stream, and others may use the memory after it: an event says when. The stream
// that frees waits for it as well, because it may be given back unused.
Status DeviceMemory::Obtain(size_t bytes, DeviceAddress* address, std::shared_ptr<DeviceEvent>* ready) {
  const Driver& driver = context().driver();
  const Current current(context());
  const size_t some = std::max<size_t>(bytes, 1);  // none is an error to the driver
  if (context().has_memory_pools()) {
    FreeUnused();
    HVD_TRY(driver.Call(driver->mem_alloc_async, address, some, giving_->handle()));
  } else {
    HVD_TRY(driver.Call(driver->mem_alloc, address, some));
  }
  const Result<std::shared_ptr<Event>> moment = giving_->Record();
  Status ordered = moment.status();
  if (ordered.ok()) ordered = (*moment)->HoldBack(taking_->handle());
  if (!ordered.ok()) {
    if (giving_->Synchronize().ok()) TakeBack(PointerTo(*address), bytes);
    return ordered;
  }
  *ready = *moment;
  return Status();
}

Status DeviceMemory::NoMemory(size_t bytes, const Status& why) const {
  size_t free = 0, total = 0;
  const Current current(context());
  std::string left = "unknown how much is";
  if (context().driver()->mem_get_info(&free, &total) == 0) left = Megabytes(free) + " of " + Megabytes(total) + " are";
  return Status(Code::kResource, "no memory on " + context().Text() + " for " + Megabytes(bytes) + " of results (" +
                                     left +
                                     " free; frameworks cache the memory that they once allocated): " + why.message());
}

void DeviceMemory::GiveBack(std::unique_ptr<Block> block, const DeviceEvent& last) {
  if (!last.HoldBack(taking_->handle()).ok()) Lose(std::move(block));
}

void DeviceMemory::UsedOn(const std::shared_ptr<const Stream>& stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(users_, [](const auto& user) { return user.expired(); });
  users_.push_back(stream);
}

Status DeviceMemory::AwaitUsers() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& user : users_) {
    const std::shared_ptr<const Stream> stream = user.lock();
    if (stream == nullptr) continue;
    const Result<std::shared_ptr<Event>> last = stream->Record();
    HVD_TRY(last.status());
    HVD_TRY((*last)->HoldBack(taking_->handle()));
  }
  return Status();
}

void DeviceMemory::TakeBack(std::byte* data, size_t) {
  const Driver& driver = context().driver();
  if (!AwaitUsers().ok()) return;  // lost, as above
  const Current current(context());
  if (!context().has_memory_pools()) {  // the host frees it, and has to wait
    if (taking_->Synchronize().ok()) (void)driver->mem_free(AddressOf(data));
    return;
  }
  if (PoolOrders()) {
    (void)driver->mem_free_async(AddressOf(data), taking_->handle());
    return;
  }
  if (const Result<std::shared_ptr<Event>> unused = taking_->Record(); unused.ok()) {
    std::lock_guard<std::mutex> lock(mutex_);
    leaving_.push_back({AddressOf(data), *unused});
  }
  FreeUnused();
}

// On the stream that gives: the pool may give it again at once there, and needs no order to know that.
void DeviceMemory::FreeUnused() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (; !leaving_.empty() && leaving_.front().unused->Reached(); leaving_.pop_front())
    (void)context().driver()->mem_free_async(leaving_.front().address, giving_->handle());
}

Result<std::byte*> Scratch::Room(size_t bytes) {
  if (block_ != nullptr && block_->bytes >= bytes) return block_->data;
  HVD_TRY(Release());
  std::shared_ptr<DeviceEvent> ready;
  Result<std::unique_ptr<Block>> block = memory_.Allocate(RoundedUp(bytes), &ready);
  HVD_TRY(block.status());
  HVD_TRY(ready->HoldBack(stream_.handle()));
  block_ = std::move(*block);
  return block_->data;
}

Status Scratch::Release() {
  if (block_ == nullptr) return Status();
  const Result<std::shared_ptr<Event>> last = stream_.Record();
  HVD_TRY(last.status());
  memory_.GiveBack(std::move(block_), **last);
  return Status();
}

PinnedMemory::~PinnedMemory() {
  const Current current(*context_);
  for (const Piece& piece : pieces_) (void)context_->driver()->mem_free_host(piece.data);
}

void PinnedMemory::Reset() {
  for (Piece& piece : pieces_) piece.used = 0;
}

Result<std::byte*> PinnedMemory::Room(size_t bytes) {
  const size_t taken = (bytes + kPinnedAlign - 1) / kPinnedAlign * kPinnedAlign;
  for (Piece& piece : pieces_) {
    if (piece.bytes - piece.used < taken) continue;
    return piece.data + std::exchange(piece.used, piece.used + taken);
  }
  const size_t wanted = RoundedUp(std::max(taken, pieces_.empty() ? 0 : 2 * pieces_.back().bytes));
  const Driver& driver = context_->driver();
  const Current current(*context_);
  void* made = nullptr;
  pieces_.reserve(pieces_.size() + 1);
  const Status obtained = driver.Call(driver->mem_host_alloc, &made, wanted, kPinnedFlags);
  if (!obtained.ok()) return obtained.Because("no " + Megabytes(wanted) + " of pinned host memory");
  pieces_.push_back({static_cast<std::byte*>(made), wanted, taken});
  return pieces_.back().data;
}

}  // namespace hvd::backend::cuda
