// World: runs the programs of all ranks over virtual time. A plan is executed as PlanRun does it: sends in their order,
// receives in theirs, each held back by its `after`, both sides taking turns on the one processor of the rank, which
// also works inside the host. Every message that arrives is compared with the receiver's plan, as its header is there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "connections.h"
#include "costs.h"
#include "nics.h"
#include "program.h"
#include "timeline.h"

namespace hvd::simulate {

struct Outcome {
  double seconds = 0;
  uint64_t messages = 0;  // between hosts
  double link_bytes = 0;  // of the busiest direction of a link
  int connections = 0;    // data connections between hosts that the busiest rank needs
  int steps = 0;          // the longest list of steps
  std::string wrong;      // what does not fit together; "": nothing
};

class World {
 public:
  World(const Layout& layout, const Costs& costs, std::vector<Program> programs);
  Outcome Run();

 private:
  struct Rank {
    Program program;
    size_t at = 0;
    bool begun = false;  // the step at `at`, of a kind that takes time
    // the plan under way
    collective::channels::Plan plan;
    Step current;
    size_t sent = 0, received = 0;
    bool receive_next = false;
    // the processor
    double free_at = 0;
    bool wakes = false;  // an event is under way
    double inside_left = 0;
    size_t insides = 0;  // that it has done, counting the one under way
    Connections connections;
  };
  using Events = Timeline<Message>;
  // What happens to a message, or to a rank (kWake). There is a lane for each rank, or host, in which it does.
  enum class Kind { kWake, kSubmit, kArriving, kArrived, kArrivedInside };

  size_t LaneOf(Kind kind, int rank) const;
  Kind KindOf(size_t lane) const;
  void Post(double at, Kind kind, int rank, const Message& message) { events_.Post(LaneOf(kind, rank), at, message); }
  void Wake(int rank, double at);
  void Serve(int rank, double now);
  bool PassSteps(int rank);  // false: the program is over
  bool Begin(Rank& rank);    // true: the step takes time
  bool PlanDone(const Rank& rank) const;
  double SendOne(int rank, double now);     // its cost, 0: nothing can be sent now
  double ReceiveOne(int rank, double now);  // likewise
  double WorkInside(int rank, double now);
  void Move(Kind kind, const Message& message, double now);
  bool Across(const Message& m) const { return layout_.host_of(m.from) != layout_.host_of(m.to); }

  const Layout layout_;
  const Costs costs_;
  Nics nics_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<int>> insides_done_;  // per host and piece of work: how many ranks are through
  Mailroom mailroom_;
  Events events_;
  Outcome outcome_;
};

}  // namespace hvd::simulate
