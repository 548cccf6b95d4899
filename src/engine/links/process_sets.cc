#include "engine/links/process_sets.h"

#include <algorithm>

#include "collective/stores/chooser.h"

namespace hvd::engine {

void ProcessSets::Add(int id, std::vector<int> ranks) {
  auto set = std::make_shared<Set>();
  collective::Group& g = set->group;
  g.ranks = std::move(ranks);
  g.deterministic = rules_.deterministic;
  const Transports& t = *transports_;
  const auto mine = std::find(g.ranks.begin(), g.ranks.end(), t.rank);
  set->member = mine != g.ranks.end();
  if (set->member) {
    g.index = static_cast<int>(mine - g.ranks.begin());
    std::vector<int> locals;
    int my_place = 0;
    for (int m = 0; m < g.size(); ++m) {
      const int rank = g.ranks[m];
      g.host_of.push_back(t.host_of_rank[rank]);
      g.channels.push_back(t.data[rank].get());
      const bool shares = rank == t.rank || (t.neighbours && t.local_of_rank[rank] >= 0);
      if (!shares) continue;
      if (rank == t.rank) my_place = static_cast<int>(locals.size());
      g.local_members.push_back(m);
      locals.push_back(t.neighbours ? t.local_of_rank[rank] : 0);
    }
    if (t.neighbours && locals.size() > 1) {
      set->view = std::make_unique<transport::LocalView>(t.neighbours.get(), std::move(locals), my_place);
      g.local = set->view.get();
    }
  }
  g.stores = std::make_shared<collective::StoreChooser>(
      static_cast<collective::StoreChooser::Setting>(rules_.store_mode),
      collective::StoreChooser::kMeasuredResults / std::max<size_t>(1, g.local_members.size()));
  std::lock_guard<std::mutex> lock(mutex_);
  sets_[id] = std::move(set);
}

void ProcessSets::Remove(int id) {
  std::lock_guard<std::mutex> lock(mutex_);
  sets_.erase(id);
}

std::shared_ptr<ProcessSets::Set> ProcessSets::Find(int id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = sets_.find(id);
  return it == sets_.end() ? nullptr : it->second;
}

std::vector<int> ProcessSets::Ranks(int id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = sets_.find(id);
  return it == sets_.end() ? std::vector<int>() : it->second->group.ranks;
}

bool ProcessSets::Holds(int id, int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sets_.find(id);
  if (it == sets_.end()) return false;
  const std::vector<int>& ranks = it->second->group.ranks;
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

std::vector<int> ProcessSets::Ids() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> ids;
  ids.reserve(sets_.size());
  for (const auto& [id, set] : sets_) ids.push_back(id);
  return ids;
}

}  // namespace hvd::engine
