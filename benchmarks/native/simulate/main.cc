// Simulates jobs of many hosts with the engine's own negotiation and schedules, over virtual time. One JSON line per
// question; benchmarks/simulate.py asks them and prints tables.
//
//   simulate HOSTSxRANKS [cost=number ...] QUESTION
//
//   agreement                           seconds from the last mark to the order on the last rank; depth of the tree
//   negotiation TENSORS [BURSTS [CAPACITY]]   one step of cached tensors: processor time, frames, bytes
//   OPERATION BYTES [flat]              one collective: seconds, messages, bytes of the busiest link, connections
//   step COMPUTE_S                      a training step; standard input has a line "READY_S BYTES" for each gradient
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "negotiation.h"
#include "training_step.h"
#include "world.h"

namespace hvd::simulate {
namespace {

using Words = std::vector<std::string>;

// Of all members together (engine/express/exchange.cc). Up to so many hosts their leaders exchange it at once.
constexpr int kDirectHosts = 8;
constexpr size_t kMostOfTwo = 32 << 10, kMostOfFew = 16 << 10, kMostWithMarks = 4 << 10;

int Refuse(const std::string& why) {
  std::fprintf(stderr, "simulate: %s\n", why.c_str());
  return 2;
}

Outcome RunCollective(const std::string& operation, size_t bytes, bool two_level, const Layout& layout,
                      const Costs& costs) {
  std::vector<Program> programs;
  for (int r = 0; r < layout.size(); ++r) programs.push_back(ProgramOf(operation, bytes, layout, r, two_level, costs));
  return World(layout, costs, std::move(programs)).Run();
}

bool GoesWithMarks(size_t bytes, const Layout& layout) {
  const size_t most = layout.size() == 2 ? kMostOfTwo : layout.size() <= kDirectHosts ? kMostOfFew : kMostWithMarks;
  return layout.hosts > 1 && bytes * static_cast<size_t>(layout.size()) <= most;
}

// What goes with the marks: from leader to leader, or up the tree and down again.
double MarksSeconds(const Layout& layout, const Costs& costs) {
  if (layout.hosts > kDirectHosts) return AgreementSeconds(layout, costs);
  const double inside_s = layout.locals > 1 ? 2 * (costs.local_s + (layout.locals - 1) * costs.node_s) : 0;
  return inside_s + (layout.hosts - 1) * costs.message_s + costs.hop_s;
}

int Agreement(const Layout& layout, const Costs& costs) {
  const std::vector<int> parent = TreeOf(layout);
  const auto children = std::count(parent.begin(), parent.end(), 0);
  long across = 0;  // of the root, to leaders of other hosts
  for (int r = 1; r < layout.size(); ++r) across += parent[r] == 0 && layout.host_of(r) != 0;
  const NegotiationCost cost = Negotiate({layout, 1, -1, 1});
  std::printf("{\"seconds\": %.9g, \"depth\": %d, \"root_children\": %ld, \"root_across\": %ld}\n",
              AgreementSeconds(layout, costs), cost.depth, static_cast<long>(children), across);
  return 0;
}

int Negotiation(const Layout& layout, const Words& words) {
  Load load{layout};
  if (words.size() > 1) load.tensors = std::atoi(words[1].c_str());
  if (words.size() > 2) load.bursts = std::atoi(words[2].c_str());
  if (words.size() > 3) load.capacity = std::atoi(words[3].c_str());
  if (load.tensors < 1 || load.tensors > 65535 || load.bursts < 1)
    return Refuse("1 to 65535 tensors, in 1 burst or more");
  const NegotiationCost cost = Negotiate(load);
  std::printf(
      "{\"busiest_s\": %.9g, \"root_s\": %.9g, \"mean_s\": %.9g, \"root_frames\": %ld, \"root_bytes\": %ld, "
      "\"down_bytes\": %ld, \"frames\": %ld, \"depth\": %d}\n",
      cost.busiest_s, cost.root_s, cost.mean_s, cost.root_frames, cost.root_bytes, cost.down_bytes, cost.frames,
      cost.depth);
  return 0;
}

int Collective(const Layout& layout, const Costs& costs, const Words& words) {
  if (words.size() < 2) return Refuse("an operation needs a number of bytes");
  const auto bytes = static_cast<size_t>(std::atoll(words[1].c_str()));
  const bool two_level = layout.hosts > 1 && layout.locals > 1 && !(words.size() > 2 && words[2] == "flat");
  // What is small travels with the marks, when a thread waits for it.
  const bool with_marks = GoesWithMarks(bytes, layout);
  const double agreement_s = with_marks ? MarksSeconds(layout, costs) : AgreementSeconds(layout, costs);
  Outcome outcome;
  if (!with_marks) outcome = RunCollective(words[0], bytes, two_level, layout, costs);
  if (!outcome.wrong.empty()) return Refuse(outcome.wrong);
  std::printf(
      "{\"seconds\": %.9g, \"agreement_s\": %.9g, \"messages\": %llu, \"link_bytes\": %.0f, \"connections\": %d, "
      "\"steps\": %d, \"two_level\": %s, \"with_marks\": %s}\n",
      agreement_s + outcome.seconds, agreement_s, static_cast<unsigned long long>(outcome.messages), outcome.link_bytes,
      outcome.connections, outcome.steps, two_level ? "true" : "false", with_marks ? "true" : "false");
  return 0;
}

int Step(const Layout& layout, const Costs& costs, const Words& words) {
  if (words.size() < 2) return Refuse("a step needs the seconds that it computes");
  std::vector<Gradient> gradients;
  Gradient gradient;
  while (std::scanf("%lf %zu", &gradient.ready_s, &gradient.bytes) == 2) gradients.push_back(gradient);
  std::map<size_t, double> known;
  const bool two_level = layout.hosts > 1 && layout.locals > 1;
  const auto allreduce_s = [&](size_t bytes) {
    const auto [it, fresh] = known.try_emplace(bytes, 0);
    if (fresh) it->second = RunCollective("allreduce", bytes, two_level, layout, costs).seconds;
    return it->second;
  };
  const StepTimes times =
      SimulateStep(gradients, std::atof(words[1].c_str()), AgreementSeconds(layout, costs), allreduce_s);
  std::printf("{\"seconds\": %.9g, \"exposed_s\": %.9g, \"batches\": %d}\n", times.seconds, times.exposed_s,
              times.batches);
  return 0;
}

int Main(int argc, char** argv) {
  Layout layout;
  Costs costs;
  if (argc < 3 || std::sscanf(argv[1], "%dx%d", &layout.hosts, &layout.locals) != 2 || layout.hosts < 1 ||
      layout.locals < 1)
    return Refuse("HOSTSxRANKS [cost=number ...] QUESTION");
  Words words;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.find('=') == std::string::npos) {
      words.push_back(word);
    } else if (!costs.Set(word)) {
      return Refuse("'" + word + "' is no cost with a number");
    }
  }
  if (words.empty()) return Refuse("no question");
  if (words[0] == "agreement") return Agreement(layout, costs);
  if (words[0] == "negotiation") return Negotiation(layout, words);
  if (words[0] == "step") return Step(layout, costs, words);
  if (std::count(Operations().begin(), Operations().end(), words[0]) == 1) return Collective(layout, costs, words);
  return Refuse("'" + words[0] + "' is no question");
}

}  // namespace
}  // namespace hvd::simulate

int main(int argc, char** argv) { return hvd::simulate::Main(argc, argv); }
