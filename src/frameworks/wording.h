// The texts of failures in the user's words.
#pragma once

#include <string>

namespace hvd::frameworks {

// "allreduce 'allreduce.w'" is the tensor that they called 'w'; and whose failure it is must be seen, because
// the frameworks' classes of errors are everybody's.
inline std::string InUsersWords(std::string message, const std::string& whose = "Horovod") {
  for (const char* operation : {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter"}) {
    const std::string own = std::string(operation) + ".";
    for (size_t at = 0; (at = message.find(" '" + own, at)) != std::string::npos; at += 2) {
      message.erase(at + 2, own.size());
    }
  }
  return whose + ": " + message;
}

}  // namespace hvd::frameworks
