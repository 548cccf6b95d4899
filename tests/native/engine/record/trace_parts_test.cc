// The parts of a trace of all ranks, each alone: clocks, pieces, the file, and how one rank is shown.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "engine/record/clock_offset.h"
#include "engine/record/rank_form.h"
#include "engine/record/tensor_form.h"
#include "engine/record/trace_file.h"
#include "engine/record/trace_pieces.h"
#include "native/harness/harness.h"

namespace hvd::test::engine_trace_parts {

using namespace hvd::engine;
using Kind = negotiation::TracePiece::Kind;

namespace {

std::string ReadAll(const std::string& path) {
  std::stringstream s;
  s << std::ifstream(path).rdbuf();
  return s.str();
}

size_t CountOf(const std::string& what, const std::string& text) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// An array of one element a line.
bool Whole(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  if (!std::getline(lines, line) || line != "[") return false;
  for (bool first = true; std::getline(lines, line) && line != "]"; first = false) {
    const std::string head = first ? "{" : last.back() == ',' ? "{" : ",{";
    if (line.compare(0, head.size(), head) != 0 || line.find('}') == std::string::npos) return false;
    last = line;
  }
  return line == "]" && !std::getline(lines, line);
}

class Folder {
 public:
  Folder() { EXPECT(mkdtemp(path_) != nullptr); }
  ~Folder() {
    for (const char* name : {"/t", "/t.1", "/t.next"}) unlink((path_ + std::string(name)).c_str());
    rmdir(path_);
  }
  std::string trace() const { return path_ + std::string("/t"); }

 private:
  char path_[32] = "/tmp/hvd_parts_XXXXXX";
};

TraceEvent Event(TraceEvent::Kind kind, int64_t at_us, const std::string& name = "") {
  TraceEvent e;
  e.kind = kind;
  e.at_us = at_us;
  e.name = name;
  e.operation = "ALLREDUCE";
  e.seq = 5;
  return e;
}

AgreedRequests Requests(const std::vector<std::string>& names, int32_t process_set = 0) {
  AgreedRequests all;
  for (const std::string& name : names) {
    auto request = std::make_shared<negotiation::Request>();
    request->name = name;
    request->shape = {4, 2};
    request->process_set = process_set;
    all.push_back(request);
  }
  return all;
}

}  // namespace

// ---- clocks

TEST(clock_offset_is_within_its_error_of_the_true_one) {
  std::mt19937 random(1);
  std::exponential_distribution<double> jitter(1 / 300e-6);
  for (const double skew : {0.0, 5.0, -0.25, 1e5}) {
    for (const auto& [down, up] : {std::pair(20e-6, 20e-6), std::pair(20e-6, 180e-6), std::pair(0.0, 0.0)}) {
      ClockOffset clock;
      EXPECT(!clock.known());
      for (int i = 0; i < 8; ++i) clock.Add(down + jitter(random) + skew, up + jitter(random) - skew);
      EXPECT(clock.known());
      EXPECT(std::abs(clock.offset_s() - skew) <= clock.error_s() + 1e-9);
      EXPECT(clock.error_s() < 1e-3);
    }
  }
}

TEST(clock_offset_forgets_what_drift_has_made_wrong) {
  ClockOffset clock;
  double skew = 0;
  for (int i = 0; i < 100; ++i) {
    skew = i * 1e-3;
    clock.Add(1e-4 + skew, 1e-4 - skew);
  }
  // Of the last rounds one direction's smallest difference is the oldest, the other's the newest.
  EXPECT(std::abs(clock.offset_s() - skew) <= 4e-3);
  EXPECT_EQ(ClockOffset().known(), false);
}

// ---- pieces

TEST(trace_pieces_hold_whole_lines_and_come_in_order) {
  TracePieces pieces;
  pieces.Begin(3, 7);
  TraceText text;
  for (int i = 0; i < 3000; ++i) text.events += ",{\"number\":" + std::to_string(i) + "}\n";
  text.names = ",{\"names\":1}\n";
  pieces.Add(text);
  pieces.End();
  negotiation::TracePiece piece;
  EXPECT(pieces.Take(&piece));
  EXPECT(piece.kind == Kind::kNames && piece.text == text.names && piece.rank == 3 && piece.number == 7);
  std::string all;
  uint32_t events = 0;
  while (pieces.Take(&piece) && piece.kind == Kind::kEvents) {
    EXPECT(piece.text.size() <= TracePieces::kPieceBytes + 1 && piece.text.back() == '\n');
    all += piece.text;
    events += piece.events;
  }
  EXPECT(all == text.events);
  EXPECT_EQ(events, 3000u);
  EXPECT(piece.kind == Kind::kEnd && pieces.empty());
  EXPECT(pieces.TakeDropped().empty());
}

TEST(trace_pieces_are_bounded_and_count_what_they_leave_out) {
  TracePieces pieces;
  pieces.Begin(1, 1);
  TraceText text;
  for (int i = 0; i < 1000; ++i) text.events += ",{\"long\":\"" + std::string(1000, 'x') + "\"}\n";
  uint64_t added = 0, taken = 0;
  for (; added < 20'000; added += 1000) pieces.Add(text);
  pieces.Dropped(7, 5);  // of another rank
  const auto lacks = pieces.TakeDropped();
  EXPECT(lacks.size() == 2 && lacks.at(7) == 5);
  const uint64_t dropped = lacks.at(1);
  EXPECT(dropped > 0);
  EXPECT(pieces.TakeDropped().empty());
  text.events = ",{\"long\":\"" + std::string(negotiation::kMostTraceBytes, 'x') + "\"}\n";
  text.names = ",{\"name\":1}\n";  // there is room for names yet
  pieces.Add(text);
  EXPECT_EQ(pieces.TakeDropped().at(1), 1u);
  size_t bytes = 0;
  bool named = false;
  for (negotiation::TracePiece piece; pieces.Take(&piece);) {
    taken += piece.events;
    bytes += piece.text.size();
    named |= piece.kind == Kind::kNames;
  }
  EXPECT_EQ(taken + dropped, added);
  EXPECT(bytes <= TracePieces::kMostBytes + text.names.size());
  EXPECT(named);
}

// ---- the file

TEST(trace_file_that_has_grown_begins_again_with_all_names) {
  const Folder folder;
  TraceFile file;
  EXPECT_OK(file.Open({.path = folder.trace(), .most_bytes = 4000}));
  file.Append(",{\"name\":\"first\"}\n", "");
  std::atomic<bool> over = false, missing = false;
  std::thread reader([&] {
    while (!over) missing = missing || access(folder.trace().c_str(), F_OK) != 0;
  });
  for (int i = 0; i < 1000; ++i) {
    file.Append(i == 500 ? ",{\"name\":\"second\"}\n" : "", ",{\"event\":" + std::to_string(i) + "}\n");
    EXPECT(Whole(ReadAll(folder.trace())));
  }
  over = true;
  reader.join();
  EXPECT(!missing);
  const std::string now = ReadAll(folder.trace()), before = ReadAll(folder.trace() + ".1");
  EXPECT(Whole(before) && now.size() <= 4000 && before.size() <= 4000);
  for (const std::string& text : {now, before}) {
    EXPECT_EQ(CountOf("\"first\"", text), 1u);
    EXPECT_EQ(CountOf("\"second\"", text), 1u);
    EXPECT_EQ(CountOf("start_time_since_epoch_in_micros", text), 1u);
  }
  EXPECT_EQ(CountOf("\"event\":999}", now), 1u);
  EXPECT(file.complete());
  EXPECT(access((folder.trace() + ".next").c_str(), F_OK) != 0);
}

TEST(trace_file_keeps_its_bound_when_much_comes_at_once) {
  const Folder folder;
  TraceFile file;
  EXPECT_OK(file.Open({.path = folder.trace(), .most_bytes = 4000}));
  std::string events;
  for (int i = 0; i < 1000; ++i) events += ",{\"event\":" + std::to_string(i) + "}\n";
  file.Append(",{\"name\":\"first\"}\n", events);
  for (const std::string& text : {ReadAll(folder.trace()), ReadAll(folder.trace() + ".1")}) {
    EXPECT(Whole(text) && text.size() <= 4000 && text.size() > 400);
    EXPECT_EQ(CountOf("\"first\"", text), 1u);
  }
  EXPECT_EQ(CountOf("\"event\":999}", ReadAll(folder.trace())), 1u);
}

TEST(trace_file_goes_on_where_an_earlier_epoch_ended) {
  const Folder folder;
  TraceFile first;
  EXPECT_OK(first.Open({.path = folder.trace()}));
  first.Append(",{\"name\":\"first\"}\n", ",{\"event\":1}\n");
  TraceFile second;  // the process that wrote the first may have been killed
  EXPECT_OK(second.Open({.path = folder.trace(), .continues = true}));
  EXPECT(std::abs(second.start_us() - first.start_us()) < 10'000'000);
  second.Append(",{\"name\":\"second\"}\n", ",{\"event\":2}\n");
  const std::string text = ReadAll(folder.trace());
  EXPECT(Whole(text));
  EXPECT(CountOf("\"event\":1}", text) == 1 && CountOf("\"event\":2}", text) == 1);
  EXPECT_EQ(CountOf("start_time_since_epoch_in_micros", text), 1u);
}

// Rank 0 may come to a host that has a file of an earlier job.
TEST(trace_file_of_another_job_is_replaced) {
  const Folder folder;
  const auto write = [&](const std::string& job, const std::string& event) {
    TraceFile file;
    EXPECT_OK(file.Open({.path = folder.trace(), .continues = true, .job = job}));
    file.Append("", ",{\"event\":" + event + "}\n");
    const std::string text = ReadAll(folder.trace());
    EXPECT(Whole(text));
    return CountOf("\"event\"", text);
  };
  EXPECT_EQ(write("", "1"), 1u);
  EXPECT_EQ(write("0a", "2"), 1u);
  EXPECT_EQ(write("0a", "3"), 2u);
  EXPECT_EQ(write("0ab", "4"), 1u);
}

// A writer that was killed while it wrote.
TEST(trace_file_goes_on_after_lines_that_are_not_whole) {
  const Folder folder;
  TraceFile first;
  EXPECT_OK(first.Open({.path = folder.trace()}));
  first.Append("", ",{\"event\":1}\n");
  const std::string whole = ReadAll(folder.trace());
  const std::string lines = whole.substr(0, whole.size() - 2), half = ",{\"event\":2,\"na" + std::string(9000, 'x');
  for (const std::string& there : {lines, lines + "]", lines + half}) {
    std::ofstream(folder.trace()) << there;
    TraceFile second;
    EXPECT_OK(second.Open({.path = folder.trace(), .continues = true}));
    second.Append("", ",{\"event\":3}\n");
    const std::string text = ReadAll(folder.trace());
    EXPECT(Whole(text) && CountOf("\"event\":1}", text) == 1 && CountOf("\"event\":3}", text) == 1);
  }
}

TEST(trace_file_replaces_what_it_cannot_go_on_with) {
  for (const char* there :
       {"", "]\n", "not a trace", "[\n{\"start_time_since_epoch_in_micros\":5}}\n,{\"half", "[\n{}\n]\n"}) {
    const Folder folder;
    std::ofstream(folder.trace()) << there;
    TraceFile file;
    EXPECT_OK(file.Open({.path = folder.trace(), .continues = true}));
    file.Append("", ",{\"event\":1}\n");
    EXPECT(Whole(ReadAll(folder.trace())));
  }
  TraceFile none;
  EXPECT(!none.Open({.path = "/nowhere/at/all", .continues = true}).ok());
}

// ---- one rank

TEST(rank_form_shows_a_tensor_from_submission_to_its_batch) {
  TraceText text;
  RankForm form({.rank = 3, .host = "a \"host\"", .epoch = 2, .base_us = 1000, .start_us = 51'000}, &text);
  EXPECT(text.names.find("\"name\":\"rank 3 (a \\\"host\\\")\"") != std::string::npos);
  form.SetClock(50'000, 12, &text);
  EXPECT(text.names.find("\"offset_us\":50000,\"error_us\":12}") != std::string::npos);
  EXPECT(text.events.find("epoch 2 begins") != std::string::npos);
  text.clear();
  form.Render(Event(TraceEvent::Kind::kSubmitted, 51'100, "w"), &text);
  TraceEvent e = Event(TraceEvent::Kind::kAgreed, 51'300);
  e.tensors = Requests({"w"});
  form.Render(e, &text);
  e = Event(TraceEvent::Kind::kBegan, 51'350, "SHM_ALLREDUCE");
  e.tensors = Requests({"w"});
  form.Render(e, &text);
  e = Event(TraceEvent::Kind::kEnded, 51'950);
  e.tensors = Requests({"w"});
  e.bytes = 32;
  form.Render(e, &text);
  for (const char* part :
       {"\"ts\":100,\"dur\":200,\"name\":\"NEGOTIATE_ALLREDUCE\"}", "\"ts\":300,\"dur\":50,\"name\":\"QUEUE\"}",
        "\"ts\":350,\"dur\":600,\"name\":\"ALLREDUCE\",\"args\":{\"dtype\":\"float32\",\"shape\":\"[4,2]\"}}",
        "{\"ph\":\"X\",\"pid\":3,\"tid\":1,\"ts\":350,\"dur\":600,\"name\":\"SHM_ALLREDUCE\",\"args\":{\"operation\":"
        "\"ALLREDUCE\",\"tensors\":1,\"bytes\":32,\"batch\":5}}",
        "{\"ph\":\"f\",\"pid\":3,\"tid\":1,\"ts\":350,\"name\":\"submitted\",\"cat\":\"batch\",\"bp\":\"e\",\"id\":"
        "12884901888}"}) {
    EXPECT_EQ(CountOf(part, text.events), 1u);
  }
  EXPECT_EQ(CountOf("\"ph\":\"s\"", text.events), 1u);
  EXPECT_EQ(CountOf("\n", text.events), size_t{text.n_events});
  text.clear();
  form.Look(51'000 + 100'000, false, &text);
  EXPECT_EQ(CountOf("\"ts\":350,\"name\":\"bytes/s\",\"args\":{\"bytes/s\":321}", text.events), 1u);
  form.Look(51'000 + 101'000, false, &text);  // too soon
  EXPECT_EQ(CountOf("\"ph\":\"C\"", text.events), 2u);
}

// Each waits for the members of its own set.
TEST(forms_keep_tensors_of_the_same_name_apart_by_process_set) {
  TraceText of_rank, of_tensors;
  RankForm form({}, &of_rank);
  TensorForm tensors(0, 0);
  TraceEvent e = Event(TraceEvent::Kind::kAgreed, 300);
  e.tensors = Requests({"w"}, 2);
  for (TraceForm* const each : std::initializer_list<TraceForm*>{&form, &tensors}) {
    TraceText* const text = each == &form ? &of_rank : &of_tensors;
    each->Render(Event(TraceEvent::Kind::kSubmitted, 100, RowOf("w", 0)), text);
    each->Render(Event(TraceEvent::Kind::kSubmitted, 200, RowOf("w", 2)), text);
    each->Render(e, text);
    EXPECT_EQ(CountOf("\"name\":\"w\"", text->names), 1u);
    EXPECT_EQ(CountOf("\"name\":\"w (process set 2)\"", text->names), 1u);
  }
  EXPECT_EQ(CountOf("\"ts\":200,\"dur\":100,\"name\":\"NEGOTIATE_ALLREDUCE\"", of_rank.events), 1u);
  EXPECT_EQ(CountOf("\"dur\"", of_rank.events), 1u);
  EXPECT_EQ(CountOf(",{\"ph\":\"E\",\"pid\":2,", of_tensors.events), 1u);
}

TEST(rank_form_lets_a_flow_begin_where_its_slice_does) {
  TraceText text;
  RankForm form({}, &text);
  const auto tensor = [&](TraceEvent::Kind kind, int64_t at_us) {
    TraceEvent e = Event(kind, at_us, kind == TraceEvent::Kind::kSubmitted ? "w" : "");
    e.tensors = Requests({"w"});
    form.Render(e, &text);
  };
  tensor(TraceEvent::Kind::kSubmitted, 100);
  tensor(TraceEvent::Kind::kAgreed, 300);
  form.SetClock(20, 5, &text);  // corrected
  tensor(TraceEvent::Kind::kBegan, 400);
  tensor(TraceEvent::Kind::kEnded, 500);
  EXPECT_EQ(CountOf("\"ts\":100,\"dur\":200,\"name\":\"NEGOTIATE_ALLREDUCE\"}", text.events), 1u);
  EXPECT_EQ(CountOf(",\"ts\":100,\"name\":\"submitted\"", text.events), 1u);
}

TEST(rank_form_says_what_waits_while_it_waits) {
  TraceText text;
  RankForm form({}, &text);
  form.Render(Event(TraceEvent::Kind::kSubmitted, 100, "w"), &text);
  for (int64_t at_us = 0; at_us < 5'000'000; at_us += 100'000) form.Look(at_us, false, &text);
  EXPECT_EQ(CountOf("waits for other ranks", text.events), 1u);
  EXPECT_EQ(CountOf("NEGOTIATE_ALLREDUCE", text.events), 0u);
  form.Look(5'000'000, true, &text);  // and when the trace ends, how long it had waited
  EXPECT_EQ(CountOf("\"dur\":4999900,\"name\":\"NEGOTIATE_ALLREDUCE\"", text.events), 1u);
  form.Lack(0, 17, 5'000'000, &text);
  form.Lack(3, 18, 5'000'000, &text);  // of a rank whose text came through this one
  for (const char* lack : {"\"pid\":0,\"tid\":1,\"ts\":5000000,\"s\":\"p\",\"name\":\"17 events dropped\"}",
                           "\"pid\":3,\"tid\":1,\"ts\":5000000,\"s\":\"p\",\"name\":\"18 events dropped\"}"}) {
    EXPECT_EQ(CountOf(lack, text.events), 1u);
  }
}

TEST(rank_form_counts_bytes_over_the_time_in_which_they_were_moved) {
  TraceText text;
  RankForm form({}, &text);
  const auto batch = [&](int64_t from_us, int64_t to_us) {
    form.Render(Event(TraceEvent::Kind::kBegan, from_us), &text);
    TraceEvent e = Event(TraceEvent::Kind::kEnded, to_us);
    e.bytes = 1000;
    form.Render(e, &text);
  };
  const auto said = [&](int64_t at_us, int rate) {
    return CountOf(
        "\"ts\":" + std::to_string(at_us) + ",\"name\":\"bytes/s\",\"args\":{\"bytes/s\":" + std::to_string(rate) + "}",
        text.events);
  };
  form.Look(1'000'000, false, &text);
  batch(1'900'000, 1'950'000);  // nobody has looked meanwhile
  form.Look(2'000'000, false, &text);
  EXPECT_EQ(said(1'900'000, 10'000), 1u);
  form.Look(2'100'000, false, &text);
  EXPECT_EQ(said(2'000'000, 0), 1u);
  // A batch that runs for long.
  form.Render(Event(TraceEvent::Kind::kBegan, 3'000'000), &text);
  for (int64_t at_us = 3'100'000; at_us < 5'000'000; at_us += 100'000) form.Look(at_us, false, &text);
  TraceEvent e = Event(TraceEvent::Kind::kEnded, 5'000'000);
  e.bytes = 1000;
  form.Render(e, &text);
  form.Look(5'000'000, false, &text);
  EXPECT_EQ(said(3'000'000, 500), 1u);
  EXPECT_EQ(CountOf("bytes/s\",", text.events), 3u);
}

TEST(rank_form_lets_unnamed_operations_share_threads) {
  TraceText text;
  RankForm form({}, &text);
  for (int i = 0; i < 100; ++i) {
    const std::string name = "allreduce.noname." + std::to_string(i);
    form.Render(Event(TraceEvent::Kind::kSubmitted, 10 * i, name), &text);
    form.Render(Event(TraceEvent::Kind::kFailed, 10 * i + 5, name), &text);
  }
  EXPECT_EQ(CountOf("\"name\":\"unnamed ", text.names), 1u);
  for (int i = 0; i < 3; ++i)
    form.Render(Event(TraceEvent::Kind::kSubmitted, 2000 + i, "allreduce.noname.1" + std::to_string(i)), &text);
  EXPECT_EQ(CountOf("\"name\":\"unnamed ", text.names), 3u);
}

}  // namespace hvd::test::engine_trace_parts
