// Watch: a process that is gone is dead at once, unless it has said its last before: then its goodbye comes.
#include "engine/links/watch.h"

#include <sys/eventfd.h>

#include "engine/wake/clock.h"
#include "native/harness/harness.h"

namespace hvd::test::engine_watch {
namespace {

using namespace hvd::engine;

constexpr double kLater = 1;       // seconds
constexpr double kMuchLater = 60;  // more than a goodbye is waited for

// What rank 0 knows of ranks 1 and 2. A process is an eventfd, and gone when it is readable.
struct Watched {
  Watched() {
    for (int i = 0; i < 2; ++i) {
      peers[i] = {};
      peers[i].rank = i + 1;
      peers[i].pid = 1001 + i;
      peers[i].memory_fd = peers[i].doorbell_fd = peers[i].control_fd = peers[i].data_fd = -1;
      peers[i].liveness_fd = process[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    }
    hvd_config c = {};
    c.struct_bytes = sizeof c;
    c.size = 3;
    c.peers = peers;
    c.n_peers = 2;
    c.memory_fd = c.doorbell_fd = c.wish_fd = -1;
    Descriptors given(c);
    waker = std::move(*Waker::Open(0, doorbell.get(), nullptr));
    watch = std::move(*Watch::Open(c, &given, waker.get(), [this](int rank) { return last_words[rank]; }));
  }
  void End(int rank) { EXPECT_EQ(eventfd_write(process[rank - 1], 1), 0); }
  // What a thread does that sleeps on the descriptors, and then the holder of the role.
  bool Look() {
    Waker::Events events;
    waker->SleepInBackground(0, &events);
    for (const Sleeper::Event& e : events) watch->NoticeGone(e.rank);
    return watch->TakeNoticed();
  }

  hvd_peer peers[2];
  int process[2];
  transport::LastWord last_words[3] = {};
  Fd doorbell{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::unique_ptr<Waker> waker;
  std::unique_ptr<Watch> watch;
};

TEST(watch_believes_a_death_at_once) {
  Watched w;
  EXPECT(!w.Look() && !w.watch->Judge(NowS() + kLater));
  w.End(2);
  EXPECT(w.Look());
  const auto death = w.watch->Judge(NowS());
  EXPECT(death && death->rank == 2 && death->why.code() == Code::kPeerLost);
  EXPECT(death && death->why.message().find("pid 1002") != std::string::npos);
  EXPECT(!w.watch->Judge(NowS() + kLater));  // told once
  EXPECT(!w.Look());                         // and watched no longer
  EXPECT(!w.watch->any_noticed() && w.watch->next_deadline() > NowS() + kMuchLater);
}

TEST(watch_goodbye_is_not_a_death) {
  Watched w;
  w.End(1);
  w.End(2);
  w.watch->Left(1, /*badly=*/false);  // read after the end was noticed, and before it is judged
  EXPECT(w.Look());
  EXPECT(w.watch->has_left(1) && !w.watch->has_left(2));
  const auto death = w.watch->Judge(NowS());
  EXPECT(death && death->rank == 2);
  EXPECT(!w.watch->Judge(NowS() + kMuchLater));
}

// Its goodbye may be on its way through a rank that is slow.
TEST(watch_waits_for_the_goodbye_of_who_has_said_its_last) {
  Watched w;
  w.last_words[1] = transport::LastWord::kGoodbye;
  w.End(1);
  w.End(2);
  EXPECT(w.Look());
  const double now = NowS();
  auto death = w.watch->Judge(now);
  EXPECT(death && death->rank == 2);
  EXPECT(!w.watch->Judge(now + kLater));
  EXPECT(w.watch->next_deadline() > now + kLater && w.watch->next_deadline() < now + kMuchLater);
  w.watch->Left(1, /*badly=*/false);
  EXPECT(!w.watch->Judge(now + kLater));
  EXPECT(w.watch->next_deadline() > now + kMuchLater);  // no longer a suspect
}

TEST(watch_gives_the_reason_of_who_gave_up_a_moment) {
  Watched w;
  w.last_words[2] = transport::LastWord::kReason;
  w.End(2);
  EXPECT(w.Look());
  const double now = NowS();
  EXPECT(!w.watch->Judge(now));
  const auto death = w.watch->Judge(now + kLater);
  EXPECT(death && death->rank == 2);
}

TEST(watch_waits_for_no_goodbye_without_end) {
  Watched w;
  w.last_words[1] = transport::LastWord::kGoodbye;
  w.End(1);
  EXPECT(w.Look());
  const auto death = w.watch->Judge(NowS() + kMuchLater);
  EXPECT(death && death->rank == 1);
}

// Jobs of few connections are not told of all ranks; a data connection to one of the others may be open, though.
TEST(watch_hears_the_goodbye_of_who_is_out_of_sight) {
  Watched w;
  EXPECT(!w.watch->has_left(7));
  w.watch->Left(7, /*badly=*/true);
  EXPECT(w.watch->has_left(7));
  w.watch->AwaitCulprits(0);
}

TEST(watch_sees_who_lives) {
  Watched w;
  EXPECT(w.watch->Lives(1));
  w.End(1);
  EXPECT(!w.watch->Lives(1));
  EXPECT(w.watch->Lives(2));
  EXPECT(w.watch->Lives(7));  // out of sight
}

TEST(watch_waits_for_culprits_only) {
  Watched w;
  w.watch->Left(1, /*badly=*/false);
  const double begin = NowS();
  w.watch->AwaitCulprits(10);  // nobody
  w.watch->Left(2, /*badly=*/true);
  w.End(2);
  w.watch->AwaitCulprits(10);
  EXPECT(NowS() < begin + 5);
}

}  // namespace
}  // namespace hvd::test::engine_watch
