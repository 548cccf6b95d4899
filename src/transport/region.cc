#include "transport/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/limits.h"

namespace hvd::transport {
namespace {

class HeapRegion final : public Region {
 public:
  explicit HeapRegion(size_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return;
    data_ = static_cast<std::byte*>(p);
    bytes_ = bytes;
  }
  ~HeapRegion() override {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Status Commit(size_t, size_t) override { return Status(); }
  Status MakePrivate(size_t, size_t) override { return Status(); }
  void Drop(size_t, size_t) override {}
  Status MakeShared(size_t, size_t) override { return Status(); }
  void DetachInChild(size_t, size_t) override {}
};

class MemfdRegion final : public Region {
 public:
  MemfdRegion(int fd, std::byte* data, size_t bytes) : fd_(fd) {
    data_ = data;
    bytes_ = bytes;
  }
  ~MemfdRegion() override {
    munmap(data_, bytes_);
    close(fd_);
  }
  Status Commit(size_t offset, size_t bytes) override {
    if (bytes == 0) return Status();
    int rc;
    do {
      rc = fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    } while (rc != 0 && errno == EINTR);
    if (rc == 0) return Status();
    return SystemFailure("no shared memory for " + std::to_string(bytes) + " more bytes", errno);
  }
  // A private mapping of the same file shows the shared pages until each is stored into, and is then a copy: so every
  // page is stored into, atomically and with what it holds. Made elsewhere and moved: a mapping that fails in its place
  // may have unmapped what was there.
  Status MakePrivate(size_t offset, size_t bytes) override {
    if (bytes == 0) return Status();
    constexpr int kFlags = MAP_PRIVATE | MAP_NORESERVE;
    void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, fd_, static_cast<off_t>(offset));
    if (made == MAP_FAILED) return SystemFailure(kCannotKeep, errno);
    if (mremap(made, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, data_ + offset) == MAP_FAILED) {
      const int error = errno;
      munmap(made, bytes);
      return SystemFailure(kCannotKeep, error);
    }
    for (size_t page = offset; page < offset + bytes; page += kPageBytes) StoreWhatIsThere(data_ + page);
    return Status();
  }
  // Where that fails the memory is only given back later.
  void Drop(size_t offset, size_t bytes) override {
    constexpr int kHow = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    (void)fallocate(fd_, kHow, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  }
  Status MakeShared(size_t offset, size_t bytes) override {
    constexpr int kHow = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    std::byte* const at = data_ + offset;
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, kHow, fd_, static_cast<off_t>(offset)) != MAP_FAILED) return Status();
    return SystemFailure("cannot map shared memory again", errno);
  }
  void DetachInChild(size_t offset, size_t bytes) override {
    if (bytes == 0) return;
    constexpr int kHow = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    std::byte* const at = data_ + offset;
    // Better a fault in the child than its numbers in the parent's tensors.
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, kHow, fd_, static_cast<off_t>(offset)) == MAP_FAILED)
      mprotect(at, bytes, PROT_READ);
  }

 private:
  static constexpr const char* kCannotKeep = "cannot keep a shared tensor as private memory";
  // An exchange, since an addition of zero may be compiled to a load.
  static void StoreWhatIsThere(std::byte* p) {
    const std::atomic_ref<unsigned char> byte(*reinterpret_cast<unsigned char*>(p));
    unsigned char there = byte.load(std::memory_order_relaxed);
    while (!byte.compare_exchange_weak(there, there)) {
    }
  }

  int fd_;
};

}  // namespace

std::shared_ptr<Region> NewHeapRegion(size_t bytes) { return std::make_shared<HeapRegion>(bytes); }

Result<std::shared_ptr<Region>> MapMemfd(int fd, size_t bytes) {
  struct stat info;
  if (fstat(fd, &info) != 0 || static_cast<size_t>(info.st_size) < bytes) {
    close(fd);
    return Status(Code::kInternal,
                  "a shared region has " + std::to_string(info.st_size) + " bytes, " + std::to_string(bytes) +
                      " are needed; all ranks must run the same version of the library with the same settings.");
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    close(fd);
    return Status(Code::kInternal, "a shared region is not sealed against shrinking; refused.");
  }
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) {
    const int error = errno;
    close(fd);
    return SystemFailure("cannot map a shared region of " + std::to_string(bytes) +
                             " bytes (a lower HOROVOD_RESIDENT_BYTES makes it smaller)",
                         error);
  }
  return std::shared_ptr<Region>(std::make_shared<MemfdRegion>(fd, static_cast<std::byte*>(p), bytes));
}

}  // namespace hvd::transport
