#include "transport/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hvd {
namespace {

std::string Errno(int error) { return std::strerror(error); }

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
    return Status(Code::kInternal, "no shared memory for " + std::to_string(bytes) + " more bytes: " + Errno(errno) +
                                       "; free memory, or raise the memory limit of the job or container.");
  }
  Status MakePrivate(size_t offset, size_t bytes) override {
    if (bytes == 0) return Status();
    void* fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
      return Status(Code::kInternal, "cannot keep a shared tensor as private memory: " + Errno(errno));
    std::memcpy(fresh, data_ + offset, bytes);
    if (mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, data_ + offset) == MAP_FAILED) {
      const int error = errno;
      munmap(fresh, bytes);
      return Status(Code::kInternal, "cannot keep a shared tensor as private memory: " + Errno(error));
    }
    return Status();
  }

 private:
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
    return Status(Code::kInternal, "cannot map a shared region of " + std::to_string(bytes) +
                                       " bytes: " + Errno(error) +
                                       "; raise the address-space limit (ulimit -v) or lower HOROVOD_RESIDENT_BYTES.");
  }
  return std::shared_ptr<Region>(std::make_shared<MemfdRegion>(fd, static_cast<std::byte*>(p), bytes));
}

}  // namespace hvd
