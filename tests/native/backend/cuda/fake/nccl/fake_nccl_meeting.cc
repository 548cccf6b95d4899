#include "native/backend/cuda/fake/nccl/fake_nccl_meeting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <set>
#include <vector>

namespace fake {
namespace {

constexpr char kPrefix[] = "fake_nccl:";

// Those that this process has made and nobody has used yet.
struct Made {
  std::mutex mutex;
  std::set<std::string> paths;
  pid_t process = getpid();
};
Made& TheMade() {
  static auto* const kMade = new Made;
  return *kMade;
}
// A forked child has no right to them.
__attribute__((destructor)) void RemoveUnused() {
  Made& made = TheMade();
  std::lock_guard<std::mutex> lock(made.mutex);
  if (made.process != getpid()) return;
  for (const std::string& path : made.paths) unlink(path.c_str());
}

std::string PathOf(const std::string& id) {
  return id.rfind(kPrefix, 0) == 0 ? id.substr(sizeof kPrefix - 1) : std::string();
}

}  // namespace

std::string MakeMeeting() {
  const char* folder = std::getenv("TMPDIR");
  const std::string name = "/fake_nccl_XXXXXX";
  for (const std::string& base : {std::string(folder == nullptr ? "/dev/shm" : folder), std::string("/dev/shm")}) {
    const std::string pattern = base + name;
    if (sizeof kPrefix + pattern.size() > 128) continue;
    std::vector<char> path(pattern.c_str(), pattern.c_str() + pattern.size() + 1);
    const int fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd < 0) continue;
    const bool sized = ftruncate(fd, sizeof(Meeting)) == 0;
    close(fd);
    if (!sized) {
      unlink(path.data());
      continue;
    }
    std::lock_guard<std::mutex> lock(TheMade().mutex);
    TheMade().process = getpid();
    TheMade().paths.insert(path.data());
    return std::string(kPrefix) + path.data();
  }
  return "";
}

std::shared_ptr<Meeting> OpenMeeting(const std::string& id) {
  const int fd = open(PathOf(id).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return nullptr;
  // Zeros are a Meeting.
  return {static_cast<Meeting*>(memory), [](Meeting* meeting) { munmap(meeting, sizeof(Meeting)); }};
}

void CloseDoor(const std::string& id) {
  unlink(PathOf(id).c_str());
  std::lock_guard<std::mutex> lock(TheMade().mutex);
  TheMade().paths.erase(PathOf(id));
}

void Ring(Meeting& meeting) {
  meeting.bell.fetch_add(1);
  syscall(SYS_futex, &meeting.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Await(Meeting& meeting, const std::function<bool()>& come, const std::function<bool()>& leave) {
  while (true) {
    const uint32_t bell = meeting.bell.load();
    if (come()) return true;
    if (leave()) return false;
    const timespec pause{0, 1000000};  // `leave` rings no bell
    syscall(SYS_futex, &meeting.bell, FUTEX_WAIT, bell, &pause, nullptr, 0);
  }
}

}  // namespace fake
