// What a trace of all ranks sends through the negotiation: orders down, pieces and clocks up, step by step.
#include <limits>

#include "native/negotiation/cluster.h"
#include "negotiation/frames/wire.h"
#include "negotiation/values/trace.h"

namespace hvd::test::negotiation_trace {

using namespace hvd::negotiation;
namespace {

using Kind = TracePiece::Kind;

// Three levels: 0; 1, 2; 3 below 1; 4 below 2.
std::vector<int> Tree() { return {-1, 0, 0, 1, 2}; }

template <class Value, class Read>
bool RefusedWhenCut(const Value& value, Read read) {
  std::vector<std::byte> bytes;
  ByteWriter w(&bytes);
  Write(value, &w);
  for (size_t length = 0; length < bytes.size(); ++length) {
    ByteReader cut(std::span<const std::byte>(bytes.data(), length));
    read(&cut);
    if (cut.ok()) return false;
  }
  ByteReader whole(bytes);
  read(&whole);
  return whole.ok() && whole.AtEnd();
}

template <class Value, class Read>
bool Refused(const Value& value, Read read) {
  std::vector<std::byte> bytes;
  ByteWriter w(&bytes);
  Write(value, &w);
  ByteReader r(bytes);
  read(&r);
  return !r.ok();
}

// As the engine does: each rank passes on what comes from below it.
void PassOn(Cluster& c) {
  for (int round = 0; round < 4; ++round) {
    c.Run();
    for (int r = 1; r < c.size(); ++r) {
      for (const TracePiece& piece : c.Of<TracePiece>(r)) c.nodes[static_cast<size_t>(r)].SendUp(piece);
      for (const ClockAnswer& answer : c.Of<ClockAnswer>(r)) c.nodes[static_cast<size_t>(r)].SendUp(answer);
      c.done[static_cast<size_t>(r)].clear();
    }
  }
}

const auto kReadPiece = [](ByteReader* r) { return ReadTracePiece(r, 5); };
const auto kReadQuestion = [](ByteReader* r) { return ReadClockQuestion(r, 5); };
const auto kReadAnswer = [](ByteReader* r) { return ReadClockAnswer(r, 5); };

}  // namespace

TEST(trace_records_are_checked) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT(RefusedWhenCut(TraceOrder{3, true, true, -77}, [](ByteReader* r) {
    const TraceOrder order = ReadTraceOrder(r);
    if (r->ok()) EXPECT(order.number == 3 && order.on && order.mark_cycles && order.base_us == -77);
  }));
  EXPECT(RefusedWhenCut(TracePiece{4, 9, Kind::kNames, 2, "text"}, [](ByteReader* r) {
    const TracePiece piece = ReadTracePiece(r, 5);
    if (r->ok()) EXPECT(piece.rank == 4 && piece.number == 9 && piece.kind == Kind::kNames && piece.text == "text");
  }));
  EXPECT(RefusedWhenCut(ClockQuestion{1.5, {{1, 0.5, 0.25}, {2, -1, 0}}}, kReadQuestion));
  EXPECT(RefusedWhenCut(ClockAnswer{2, 3.5, -1}, kReadAnswer));
  EXPECT(Refused(TracePiece{5, 0, Kind::kEvents, 0, ""}, kReadPiece));
  EXPECT(Refused(TracePiece{0, 0, static_cast<Kind>(3), 0, ""}, kReadPiece));
  EXPECT(Refused(TracePiece{0, 0, Kind::kEvents, 0, std::string(kMostTraceBytes + 1, 'x')}, kReadPiece));
  EXPECT(!Refused(TracePiece{0, 0, Kind::kEvents, 0, std::string(kMostTraceBytes, 'x')}, kReadPiece));
  EXPECT(Refused(ClockQuestion{kNan, {}}, kReadQuestion));
  EXPECT(Refused(ClockQuestion{0, {{5, 0, 0}}}, kReadQuestion));
  EXPECT(Refused(ClockAnswer{1, 0, std::numeric_limits<double>::infinity()}, kReadAnswer));
}

TEST(trace_orders_reach_all_ranks) {
  Cluster c(Tree());
  c.nodes[0].OrderTrace({.number = 1, .on = true, .base_us = 5}, c.now);
  c.nodes[3].OrderTrace({.number = 2, .on = true}, c.now);  // is not for it
  c.nodes[0].AskClocks({1.25, {{2, 0.5, 0.1}}}, c.now);
  c.Run();
  for (int r = 0; r < c.size(); ++r) {
    EXPECT_EQ(c.Count<TraceOrder>(r), 1);
    EXPECT(c.Of<TraceOrder>(r).front().base_us == 5);
    EXPECT_EQ(c.Count<ClockQuestion>(r), 1);
    EXPECT(c.Of<ClockQuestion>(r).front().hosts.front().offset_s == 0.5);
  }
}

TEST(trace_pieces_come_up_a_tree_of_three_levels) {
  Cluster c(Tree());
  const std::string text = "\x01 not JSON, and nobody looks \xff";
  for (int r = 1; r < c.size(); ++r) {
    for (int i = 0; i < 3; ++i)
      c.nodes[static_cast<size_t>(r)].SendUp(
          TracePiece{r, 1, i < 2 ? Kind::kEvents : Kind::kEnd, 1, text + std::to_string(i)});
    c.nodes[static_cast<size_t>(r)].SendUp(ClockAnswer{r, 1, 2});
  }
  PassOn(c);
  std::map<int, int> pieces;
  for (const TracePiece& piece : c.Of<TracePiece>(0)) EXPECT(piece.text == text + std::to_string(pieces[piece.rank]++));
  for (int r = 1; r < c.size(); ++r) EXPECT_EQ(pieces[r], 3);
  EXPECT_EQ(c.Count<ClockAnswer>(0), 4);
}

// Operations are agreed upon as without a trace, whatever stands between their marks.
TEST(trace_pieces_do_not_disturb_operations) {
  Cluster c(Tree());
  for (int step = 0; step < 20; ++step) {
    for (int r = 0; r < c.size(); ++r) {
      const Request t = Tensor("t" + std::to_string(step % 3));
      c.nodes[static_cast<size_t>(r)].SendUp(TracePiece{r, 1, Kind::kEvents, 1, std::string(1000, 'x')});
      c.nodes[static_cast<size_t>(r)].Submit(std::span(&t, 1), c.now);
    }
    c.Run();
  }
  for (int r = 0; r < c.size(); ++r) EXPECT_EQ(c.Count<ExecuteBatch>(r), 20);
  EXPECT_EQ(c.Count<TracePiece>(0), 20 * 2);  // of its children
}

TEST(trace_pieces_of_ranks_elsewhere_are_refused) {
  for (const int record : {static_cast<int>(UpRecord::kTrace), static_cast<int>(UpRecord::kClock)}) {
    for (const int rank : {0, 2, 4}) {  // 3 sends to 1; only 3 is below it
      Cluster c(Tree());
      Bytes frame(kFrameHeaderBytes);
      WriteHeader({Direction::kUp, 3, 7, 0}, frame.data());
      ByteWriter w(&frame);
      w.U8(static_cast<uint8_t>(record));
      if (record == static_cast<int>(UpRecord::kTrace)) {
        Write(TracePiece{rank, 1, Kind::kEvents, 0, "x"}, &w);
      } else {
        Write(ClockAnswer{rank, 0, 0}, &w);
      }
      const Status status = c.nodes[1].Receive(3, frame, c.now);
      EXPECT(!status.ok() && status.message().find("not below it") != std::string::npos);
    }
  }
}

}  // namespace hvd::test::negotiation_trace
