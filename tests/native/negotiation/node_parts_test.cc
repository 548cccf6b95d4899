// The parts of a negotiator, each alone: no node, no tree of nodes.
#include "native/negotiation/cluster.h"
#include "negotiation/frames/versions.h"
#include "negotiation/stall/inspector.h"
#include "negotiation/stall/parent_watch.h"
#include "negotiation/state/departures.h"
#include "negotiation/state/joins.h"
#include "negotiation/state/marks.h"
#include "negotiation/state/ready_queue.h"

namespace hvd::test::negotiation_node_parts {

using namespace hvd::negotiation;
using hvd::negotiation::Place;
namespace {

// The parts below and around marks, of one rank of a job.
struct Bench {
  Bench(int rank, const std::vector<int>& parent) : place(FindPlace(rank, static_cast<int>(parent.size()), parent)) {}

  // What stands in the frame to the parent, behind its head.
  size_t UpBytes() { return out.has_up() ? out.UpFrame().size() - kFrameHeaderBytes : 0; }
  void Define(uint32_t id, const Request& q) { marks.Define(id, std::make_shared<Request>(q)); }

  Place place;
  SetTable sets{&place};
  Versions versions{place.sources()};
  Outbox out{static_cast<uint32_t>(place.rank), 7, &versions};
  Results results;
  AbortState abort{place.root(), &out, &results};
  ReadyQueue ready;
  Marks marks{place, sets, &out, &ready, -1};
  Joins joins{&place, &sets, &marks, &out};
  Departures departures{&place, 0.5, &out, &results, &abort};
};

TEST(negotiation_part_versions_make_void_what_was_sent_before) {
  Versions v(3);
  EXPECT(!v.Heard(1, 1));  // ahead of the log
  v.Next();
  v.DropGroup(0, 99);
  EXPECT(v.Dropped(1, {0, "a"}, 99));
  EXPECT(!v.Dropped(1, {0, "a"}, 98));
  EXPECT(!v.Dropped(1, {2, "a"}, 99));
  EXPECT(v.Heard(1, 1));
  EXPECT(!v.Heard(1, 0));  // behind itself
  EXPECT(!v.Dropped(1, {0, "a"}, 99));
  EXPECT(v.Dropped(2, {0, "a"}, 99));  // the other child has not obeyed yet
  v.Next();
  v.DropName({0, "a"});
  EXPECT(v.Dropped(1, {0, "a"}, 0));
  EXPECT(!v.Dropped(1, {0, "b"}, 0));
}

TEST(negotiation_part_marks_are_ready_at_the_root_when_all_have_marked) {
  Bench b(0, {-1, 0, 0});
  b.Define(0, Tensor("a"));
  EXPECT(b.marks.TryMarkOwn(Tensor("a"), 5));
  b.marks.Mark(0, 1, 6);
  EXPECT_EQ(b.marks.incomplete(), 1);
  EXPECT(!b.ready.any());
  b.marks.Mark(0, 2, 7);
  EXPECT_EQ(b.marks.incomplete(), 0);
  EXPECT(b.ready.any());
  EXPECT_EQ(b.marks.own_waiting(), 1);
  EXPECT_EQ(b.marks.UseCached(0), 1u);  // the ticket
  EXPECT_EQ(b.marks.own_waiting(), 0);
  EXPECT(b.marks.OwnUnder({0, "a"}) == Marks::Own::kNothing);
}

TEST(negotiation_part_marks_go_up_from_an_inner_rank) {
  Bench b(1, {-1, 0, 1});
  b.Define(0, Tensor("a"));
  EXPECT(b.marks.TryMarkOwn(Tensor("a"), 5));
  EXPECT(!b.marks.TryMarkOwn(Tensor("a"), 5));           // in flight
  EXPECT(!b.marks.TryMarkOwn(Tensor("a", {9}), 5));      // another shape
  EXPECT(!b.marks.TryMarkOwn(Tensor("never seen"), 5));  // no id
  EXPECT_EQ(b.UpBytes(), 0u);
  b.marks.Mark(0, 1, 6);
  EXPECT_EQ(b.UpBytes(), 6u);  // a run of one mark
}

TEST(negotiation_part_marks_of_a_changed_request_become_a_tally) {
  Bench b(0, {-1, 0});
  b.Define(0, Tensor("a"));
  b.marks.Mark(0, 1, 5);
  b.marks.AddOwn(Tensor("a", {9}), {}, 6);
  const Tally* t = b.marks.NextToDecide();
  EXPECT(t != nullptr && t->Merged().size() == 2);
  EXPECT_EQ(t->since, 5.0);
  EXPECT(b.marks.NextToDecide() == nullptr);
  const Request own = b.marks.Fail({0, "a"}, 0);
  EXPECT_EQ(own.ticket, 1u);
  EXPECT_EQ(b.marks.incomplete() + b.marks.own_waiting(), 0);
  EXPECT(b.marks.TryMarkOwn(Tensor("a"), 7));  // and the cached way is open again
}

TEST(negotiation_part_marks_taken_back_with_their_group_are_not_decided) {
  Bench b(0, {-1, 0});
  Request q = Tensor("a");
  q.group_hash = 42;
  q.group_size = 2;
  b.marks.AddOwn(q, {}, 5);
  b.marks.Add({0, "a"}, q.type, {{1, std::make_shared<Request>(q), {}, 0, -1, RankSet::Of(1)}}, 5);
  const std::vector<Request> own = b.marks.DropGroups(0, {42}, 1);
  EXPECT_EQ(own.size(), 1u);
  EXPECT(b.marks.NextToDecide() == nullptr);
  EXPECT_EQ(b.marks.incomplete() + b.marks.own_waiting(), 0);
}

TEST(negotiation_part_joins_complete_what_waits_for_the_joined) {
  Bench b(0, {-1, 0, 0});
  b.marks.AddOwn(Tensor("a"), {}, 5);
  EXPECT_OK(b.joins.FromChild(1, 1));
  EXPECT(!b.joins.FromChild(1, 1).ok());     // twice
  EXPECT(!b.joins.FromChild(1, 2).ok());     // not below it
  EXPECT(!b.joins.AllFromChild(2, 6).ok());  // rank 2 has not
  EXPECT_OK(b.joins.AllFromChild(1, 6));
  EXPECT(b.marks.NextToDecide() == nullptr);
  EXPECT_OK(b.joins.FromChild(2, 2));
  EXPECT_OK(b.joins.AllFromChild(2, 6));
  EXPECT(b.marks.NextToDecide() != nullptr);
  EXPECT(!b.joins.complete());
  b.joins.JoinSelf(77, 7);
  EXPECT(b.joins.complete());
  EXPECT_EQ(b.joins.last_rank(), 0);
  EXPECT_EQ(b.joins.End(), 77u);
  EXPECT(b.joins.ranks().empty() && !b.joins.complete());
}

TEST(negotiation_part_departures_tell_the_leaver_last) {
  Bench b(0, {-1, 0, 0, 0});
  Departures::Leaver leaver;
  EXPECT_OK(b.departures.FromChild(1, {1, ""}));
  EXPECT(!b.departures.FromChild(1, {2, ""}).ok());
  EXPECT(b.departures.NextLeaver(&leaver) && leaver.rank == 1);
  EXPECT(!b.departures.NextLeaver(&leaver));
  b.departures.Obey(leaver);
  EXPECT(b.departures.Listeners() == (std::vector<int>{2, 3, 1}));
  b.departures.ListenersInformed();
  EXPECT(b.departures.Listeners() == (std::vector<int>{2, 3}));
}

TEST(negotiation_part_departures_judge_a_death_when_its_goodbye_is_due) {
  Bench b(0, {-1, 0, 0});
  b.departures.Lost(1, "gone", 10);
  b.departures.Lost(2, "gone", 10.25);
  EXPECT_EQ(b.departures.next_judgement(), 10.5);
  b.departures.Obey({1, ""});
  EXPECT_EQ(b.departures.next_judgement(), 10.75);
  b.departures.JudgeLost(10.5);
  EXPECT(!b.abort.over());
  b.departures.JudgeLost(10.75);
  EXPECT_EQ(b.abort.why().message(), "rank 2 was lost: gone");
}

TEST(negotiation_part_inspector_looks_one_warning_time_after_something_waits) {
  StallInspector inspector({60, 100});
  EXPECT_EQ(inspector.deadline(), kNever);
  inspector.Observe(true, 5);
  inspector.Observe(true, 30);
  EXPECT_EQ(inspector.deadline(), 65.0);
  const StalledTally old{{0, "a"}, OpType::kAllreduce, 5, 0, 0}, young{{0, "b"}, OpType::kAllreduce, 30, 0, 0};
  EXPECT_EQ(inspector.Old({young, old}, 65).size(), 1u);
  EXPECT_EQ(inspector.deadline(), 90.0);  // of the young one; the old one is over at 105
  inspector.Observe(false, 70);
  EXPECT_EQ(inspector.deadline(), kNever);
  EXPECT_EQ(inspector.TakeQuestion({old}, 65).size(), 1u);
  EXPECT(!inspector.Notice(old, 66));  // asked about a moment ago
  EXPECT(inspector.Notice(young, 66));
  EXPECT_EQ(inspector.TakeQuestion({}, 67).size(), 1u);
}

TEST(negotiation_part_parent_watch_asks_before_it_calls_a_parent_silent) {
  ParentWatch watch({60, 0});
  watch.Heard(10);
  EXPECT_EQ(watch.At(5, 65).again_at, 70.0);
  EXPECT(watch.At(5, 70).ask);
  EXPECT(!watch.At(5, 71).silent);
  EXPECT(watch.At(5, 72).silent);
  watch.Heard(73);
  EXPECT(!watch.At(5, 74).silent);
}

}  // namespace
}  // namespace hvd::test::negotiation_node_parts
