#include "base/limits.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace hvd {
namespace {

// "256", or "many".
std::string Allowed(__rlimit_resource_t resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "many";
  return std::to_string(limit.rlim_cur);
}

// Empty: no shortage.
std::string Remedy(int error) {
  switch (error) {
    case EMFILE:
      return "this process may have " + Allowed(RLIMIT_NOFILE) + " descriptors open; raise that limit (ulimit -n).";
    case ENFILE:
      return "the machine has no descriptors left; raise fs.file-max, or end other programs.";
    case ENOMEM:
      return "free memory, or raise the limit of the job or container, or of the address space (ulimit -v).";
    case ENOSPC:
    case EDQUOT:
      return "free memory or space, or raise the limit of the job or container.";
    case EFBIG:
      return "raise the limit of the size of files, which counts for shared memory too (ulimit -f).";
    default:
      return "";
  }
}

}  // namespace

Status SystemFailure(const std::string& what, int error) {
  const std::string remedy = Remedy(error), fact = what + ": " + std::strerror(error);
  return remedy.empty() ? Status(Code::kInternal, fact + ".") : Status(Code::kResource, fact + "; " + remedy);
}

Status ThreadFailure(const std::string& what, int error) {
  if (error != EAGAIN) return SystemFailure(what, error);
  return Status(Code::kResource, what + ": " + std::strerror(error) + "; this user may have " + Allowed(RLIMIT_NPROC) +
                                     " processes and threads, a container fewer; raise that limit (ulimit -u, pids.max "
                                     "of the container), or end other programs.");
}

}  // namespace hvd
