// Silence, over virtual time: what a kernel says of a cut link, of a stopped reader, of a slow, a lossy and an idle
// one.
#include "transport/silence.h"

#include <functional>
#include <set>

#include "native/harness/harness.h"

namespace hvd::test::transport_silence {
namespace {

using transport::Silence;

constexpr double kPatienceS = 3.5, kLookS = 0.25;

// A connection whose events are given by their times; -1: never.
struct Story {
  std::set<double> sent, heard, asked;  // asked: for room

  Silence::Facts At(double now) const {
    const auto last = [now](const std::set<double>& times) {
      const auto after = times.upper_bound(now);
      return after == times.begin() ? -1000.0 : *std::prev(after);
    };
    Silence::Facts facts;
    facts.since_sent = now - last(sent);
    facts.since_heard = now - last(heard);
    for (const double at : asked) facts.questions += at <= now && at > last(heard);
    facts.owed = last(sent) > last(heard) || facts.questions > 0;
    return facts;
  }

  // When it is found silent, in looks from `begin` to `end`; -1: not.
  double FoundAt(double begin, double end) const {
    Silence silence;
    for (double now = begin; now <= end; now += kLookS) {
      if (silence.Judge(At(now), now, kPatienceS)) return now;
    }
    return -1;
  }
};

// An unanswered segment is sent again and again, each time after twice as long.
void SendInVain(double begin, double end, double rto, std::set<double>* sent) {
  for (double at = begin; at < end; at += rto, rto *= 2) sent->insert(at);
}

TEST(silence_finds_a_link_that_is_cut_in_the_middle_of_a_transfer) {
  for (const double rto : {0.2, 0.4, 0.8}) {
    Story story;
    for (double at = 0; at < 10; at += 0.01) story.sent.insert(at), story.heard.insert(at + 0.0001);
    SendInVain(10, 60, rto, &story.sent);
    const double found = story.FoundAt(0, 60);
    EXPECT(found >= 10 + kPatienceS && found <= 10 + kPatienceS + rto + kLookS);
  }
}

TEST(silence_finds_a_cut_link_after_a_long_idle_time) {
  Story story;
  story.sent.insert(1), story.heard.insert(1.001);
  SendInVain(1000, 1060, 0.2, &story.sent);
  const double found = story.FoundAt(999, 1060);
  EXPECT(found >= 1000 + kPatienceS && found <= 1000 + kPatienceS + 0.5);
}

TEST(silence_is_not_that_of_a_stopped_reader_whose_kernel_answers) {
  Story full;  // no room: the kernel asks for it, less and less often, and hears that there is none
  full.sent.insert(1), full.heard.insert(1.001);
  double at = 1.2, pause = 0.2;
  for (; at < 300; at += pause, pause = std::min(pause * 2, 120.0))
    full.asked.insert(at), full.heard.insert(at + 0.001);
  EXPECT(full.FoundAt(0, 300) < 0);
  Story shrunk;  // the window was taken back: what was under way is sent again and again, and refused
  shrunk.sent.insert(1), shrunk.heard.insert(1.001);
  at = 1.2, pause = 0.2;
  for (; at < 300; at += pause, pause = std::min(pause * 2, 120.0))
    shrunk.sent.insert(at), shrunk.heard.insert(at + 0.001);
  EXPECT(shrunk.FoundAt(0, 300) < 0);
}

TEST(silence_finds_a_link_that_is_cut_while_the_reader_is_stopped) {
  Story story;
  story.sent.insert(1), story.heard.insert(1.001);
  for (const double at : {1.2, 1.4, 1.8}) story.asked.insert(at), story.heard.insert(at + 0.001);
  SendInVain(2.6, 60, 1.6, &story.asked);
  const double found = story.FoundAt(0, 60);
  EXPECT(found >= 2.6 + kPatienceS && found < 12);
}

TEST(silence_is_not_found_where_nothing_is_asked) {
  Story idle;  // an hour without a word
  idle.sent.insert(1), idle.heard.insert(1.001);
  EXPECT(idle.FoundAt(0, 3600) < 0);
  Story listener;  // it is the other side that sends
  for (double at = 0; at < 100; at += 10) listener.heard.insert(at);
  EXPECT(listener.FoundAt(0, 100) < 0);
}

TEST(silence_is_not_that_of_a_slow_or_lossy_link) {
  Story slow;
  for (double at = 0; at < 60; at += 0.1) slow.sent.insert(at), slow.heard.insert(at + 0.4);
  EXPECT(slow.FoundAt(0, 60) < 0);
  Story lossy;  // each first and second try is lost
  for (double at = 0; at < 60; at += 1) {
    for (const double later : {0.0, 0.2, 0.6}) lossy.sent.insert(at + later);
    lossy.heard.insert(at + 0.6001);
  }
  EXPECT(lossy.FoundAt(0, 60) < 0);
}

// One answer that is lost is no cut: a stopped reader is asked seldom.
TEST(silence_needs_two_questions) {
  Story story;
  story.sent.insert(1), story.heard.insert(1.001);
  story.sent.insert(20), story.heard.insert(26.001);
  story.sent.insert(26);
  EXPECT(story.FoundAt(0, 40) < 0);
}

// Two looks long after one another, with an answer right after the first: no time has passed in silence.
TEST(silence_begins_anew_with_every_answer) {
  Silence silence;
  EXPECT(!silence.Judge({true, 0.0, 0.004, 0}, 10, kPatienceS));
  EXPECT(!silence.Judge({true, 0.0, 9.9999, 0}, 20, kPatienceS));
  EXPECT(!silence.Judge({true, 0.0, 10.2499, 0}, 20.25, kPatienceS));
}

}  // namespace
}  // namespace hvd::test::transport_silence
