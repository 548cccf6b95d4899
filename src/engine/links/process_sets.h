// ProcessSets: the registered groups of ranks, with the transports that each needs. Changed in log order by the holder
// of the driver role; read by any thread (under the lock).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "collective/batch.h"
#include "transport/local_view.h"

namespace hvd::engine {

// What the groups are built from: this rank's ways to the others.
struct Transports {
  int rank = 0;
  std::vector<int> host_of_rank;
  std::unique_ptr<transport::Neighbours> neighbours;      // null: alone on its host
  std::vector<int> local_of_rank;                         // index among the neighbours, or -1
  std::vector<std::unique_ptr<transport::Channel>> data;  // per rank; null: itself
};

class ProcessSets {
 public:
  // How the groups go about it.
  struct Rules {
    bool deterministic = false;
    int store_mode = 0;  // as in hvd_config: 0 measure, 1 ordinary, 2 streaming
  };
  struct Set {
    collective::Group group;
    std::unique_ptr<transport::LocalView> view;
    bool member = false;
  };

  ProcessSets(Transports* transports, const Rules& rules) : transports_(transports), rules_(rules) {}

  void Add(int id, std::vector<int> ranks);
  void Remove(int id);
  // Null: unknown id. A set that was removed lives on with its last user.
  std::shared_ptr<Set> Find(int id);
  // Copies for other threads. Empty: unknown id.
  std::vector<int> Ranks(int id);
  // Is it a member? No: of an unknown set nobody is.
  bool Holds(int id, int rank);
  std::vector<int> Ids();

 private:
  Transports* const transports_;
  const Rules rules_;
  std::mutex mutex_;  // guards sets_
  std::map<int, std::shared_ptr<Set>> sets_;
};

}  // namespace hvd::engine
