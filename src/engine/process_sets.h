// ProcessSets: the registered groups of ranks, with the transports that each needs. Changed in log order by the holder
// of the driver role; read by any thread (under the lock).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "collective/batch.h"
#include "transport/local_view.h"

namespace hvd {

// What the groups are built from: this rank's ways to the others.
struct Transports {
  int rank = 0;
  std::vector<int> host_of_rank;
  std::unique_ptr<Neighbours> neighbours;      // null: alone on its host
  std::vector<int> local_of_rank;              // index among the neighbours, or -1
  std::vector<std::unique_ptr<Channel>> data;  // per rank; null: itself
};

class ProcessSets {
 public:
  explicit ProcessSets(Transports* transports) : transports_(transports) {}

  struct Set {
    Group group;
    std::unique_ptr<LocalView> view;
    bool member = false;
  };

  // store_mode as in hvd_config: 0 measure, 1 ordinary, 2 streaming.
  void Configure(bool deterministic, int hierarchical, int store_mode) {
    store_mode_ = store_mode;
    deterministic_ = deterministic;
    hierarchical_ = hierarchical;
  }
  void Add(int id, std::vector<int> ranks);
  void Remove(int id);
  // Null: unknown id. A set that was removed lives on with its last user.
  std::shared_ptr<Set> Find(int id);
  // Copies for other threads. Empty: unknown id.
  std::vector<int> Ranks(int id);
  std::vector<int> Ids();

 private:
  Transports* transports_;
  bool deterministic_ = false;
  int hierarchical_ = -1;
  int store_mode_ = 0;
  std::mutex mutex_;  // guards sets_
  std::map<int, std::shared_ptr<Set>> sets_;
};

}  // namespace hvd
