// TraceFile: the file of a trace. It is valid JSON at every moment: the closing bracket is written with each append and
// overwritten by the next. A file that has grown too large becomes PATH.1, in the place of an older one, and PATH
// begins again, with all names. Used by a timeline's writer, and before there is one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace hvd::engine {

class TraceFile {
 public:
  struct Plan {
    std::string path = {};
    std::string first_name = {};  // of the process 0 of the trace; empty: its rank names it
    int64_t most_bytes = 0;       // 0: it may grow without a bound
    bool continues = false;       // what an earlier epoch of the job has written there
    std::string job = {};         // its name, in the head of the file
  };
  Status Open(const Plan& plan);
  void Close() { file_.Reset(); }
  bool is_open() const { return file_.valid(); }
  // Where the times of the trace begin, on this host's clock.
  int64_t start_us() const { return start_us_; }
  const std::string& path() const { return plan_.path; }
  // Elements, each after a comma. Names are repeated in every later file.
  void Append(const std::string& names, const std::string& events);
  // Everything has been written so far.
  bool complete() const { return complete_; }

 private:
  void AppendSome(std::string_view names, std::string_view events);
  bool Begin();
  bool Continue();
  bool FindEnd(off_t size);
  void Rotate();
  bool WriteAt(off_t at, const std::string& text);
  std::string Job() const;
  std::string Head() const;

  Plan plan_;
  Fd file_;
  off_t end_ = 0;
  bool complete_ = true;
  int64_t start_us_ = 0, start_of_day_us_ = 0;  // one moment by both clocks
  std::string names_;
};

}  // namespace hvd::engine
