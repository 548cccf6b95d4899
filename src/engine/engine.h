// Engine: one rank's runtime. Owns the connections, the negotiation, the executor and the background thread; entered
// through api/.
//
// One thread at a time holds the *driver role* and moves everything forward (Progress). A thread that waits for a
// result takes the role and spins, then sleeps; the background thread takes it only while there is work that nobody
// waits for, and keeps watch over the descriptors. Nobody polls, so an idle job costs nothing. Callbacks run after the
// role is released.
//
// Locks: Submissions, HandleTable, Completion and ProcessSets have their own, never held while taking another. role_ is
// not a lock to wait for: a thread that does not get it sleeps on waiters_ until its result is there or the role is
// free.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "engine/control_links.h"
#include "engine/executor.h"
#include "engine/express.h"
#include "engine/handle_table.h"
#include "engine/process_sets.h"
#include "engine/sleeper.h"
#include "engine/submissions.h"
#include "engine/timeline.h"
#include "negotiation/node.h"

namespace hvd {

double NowS();  // steady clock, seconds

class Engine {
 public:
  // Where the arena of a rank comes from: a memfd, or (in tests, so that the thread sanitizer sees one memory) the
  // heap.
  using MapArena = std::function<Result<std::shared_ptr<Region>>(int rank, int fd, size_t bytes)>;
  // Takes over every descriptor in the config, also when it fails.
  static Result<std::unique_ptr<Engine>> Create(const hvd_config& config, const MapArena& map = MapArenaFromMemfd);
  static Result<std::shared_ptr<Region>> MapArenaFromMemfd(int rank, int fd, size_t bytes);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Says goodbye and waits at most timeout_s for what is under way; then fails the rest.
  void Shutdown(double timeout_s);
  // Everything pending and future fails with `why`; the other ranks are told.
  void Abort(const Status& why, bool tell_others = true);

  // flags: HVD_SUBMIT_...; counted: see NameAll.
  Status Submit(const hvd_op* ops, int n, uint32_t flags, std::shared_ptr<Completion>* out,
                const std::string& counted = "");
  Status Refuse(OpType type, int process_set, const std::string& name, const std::string& reason);
  Status AddSet(std::vector<int> ranks, std::shared_ptr<Completion>* out);
  Status RemoveSet(int id, std::shared_ptr<Completion>* out);
  // Submits and waits. *out: null if it is done, was successful, and its outputs are the caller's; otherwise it may be
  // unfinished after timeout_s, or a signal.
  Status Run(const hvd_op* ops, int n, double timeout_s, std::shared_ptr<Completion>* out);
  // True: done. False: the time is over, or a signal arrived.
  bool Wait(Completion& completion, double timeout_s);
  // One look at what can move on, without waiting.
  void Poll();

  const hvd_topology& topology() const { return topology_; }
  HandleTable& handles() { return handles_; }
  ProcessSets& sets() { return sets_; }
  Timeline& timeline() { return timeline_; }
  std::shared_ptr<ResidentHeap> heap() const {
    return transports_.neighbours ? transports_.neighbours->heap() : nullptr;
  }
  std::string DescribeJson();
  // In a forked child: closes the descriptors, so that the parent's death is seen by its peers; nothing else may be
  // called after.
  void CloseInChild();

 private:
  struct Peer {
    int rank = -1;
    int64_t pid = 0;
    double suspected_at = 0;  // its process is gone; 0: not
    bool left = false;        // it said goodbye
  };
  enum class Woken { kProgress, kTimeout, kSignal };
  enum class Leaving { kWaiter, kSubmitter, kBackground };

  explicit Engine(const hvd_config& config);
  Status Connect(const hvd_config& config, const MapArena& map);
  Status ConnectLocal(const hvd_config& config, const MapArena& map);
  Status ConnectRemote(const hvd_peer& peer);
  void AddBackends();
  void OpenExpress();
  // Ranks of this host share cores: who waits gives its core away, and does not spin. The same for all of them.
  bool Crowded() const { return sees_crowd_ || (transports_.neighbours && transports_.neighbours->cores_are_shared()); }

  // submission (any thread)
  Status Check(const hvd_op& op, const Group& group);
  // Type, set, name, group. counted: the name of a single unnamed operation that has got it already.
  std::vector<Request> NameAll(const hvd_op* ops, int n, const std::string& counted = "");
  std::unique_ptr<Submitted> Prepare(const hvd_op& op, int set_size, Request* request);
  Status Refuse(std::vector<Request> what, const std::string& reason);
  Status Wish(Submission submission, const std::shared_ptr<Completion>& completion);
  void Kick(bool will_wait);
  bool RunAtOnce(const hvd_op& op, std::string* counted, std::shared_ptr<Completion>* out);
  void LookSoon();

  // driver role
  bool TryTakeRole();
  void LeaveRole(Leaving who);
  void PutDownRole();
  bool Progress();
  bool PassSubmissions();
  bool ReadLinks();
  void Pass(Submission& submission, double now);
  bool Decide();
  void Obey(Action& action);
  void Finish(Job& job, const Status& status, bool fatal);
  bool HoldForReason(Job& job, const Status& status);
  void Arrive(Completion& completion, Status status);
  void Fail(const Status& why, bool tell_others);
  bool CheckClock();
  void JudgeSuspects(double now);
  double StampS() const;
  double NextDeadline();
  bool AnythingReady();
  bool Busy() const { return submissions_.any_in_flight() || executor_.size() > 0 || links_.HasUnsent(); }
  Woken DriveFor(Completion& completion, double deadline);
  Woken SleepInRole(double deadline);
  void Look();
  void RunCallbacks(std::vector<std::pair<Completion::Callback, Status>> callbacks);

  // background thread
  void BackgroundLoop();
  bool DriveInBackground();
  void Notice(const std::vector<Sleeper::Event>& events);
  void HandleNoticed();

  // ---- constant after Create
  int rank_ = 0, size_ = 1;
  hvd_topology topology_ = {};
  std::string hostname_;
  double collective_timeout_s_ = 30;
  bool sees_crowd_ = false;  // ranks of this host share cores, as far as this one sees
  double spin_us_ = -1;      // before a waiting thread sleeps; < 0: as long as suits the cores
  bool lingers_ = false;
  int affinity_ = -1;

  // ---- shared between threads
  std::atomic<bool> role_{false};
  std::atomic<int> role_wanted_{0};  // waiting threads that would like the role
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  Submissions submissions_;
  HandleTable handles_;
  std::mutex wait_mutex_;                // guards noticed_, and waiters_ against lost notifications
  std::condition_variable waiters_;      // threads that did not get the role
  std::atomic<int> asleep_{0};           // how many are in it
  std::vector<Sleeper::Event> noticed_;  // by the background thread, for whoever has the role
  std::atomic<bool> any_noticed_{false};
  std::map<int, int> liveness_fd_;                                         // by rank; constant after Create
  std::atomic<double> background_until_{0};                                // the background thread wakes by itself then
  std::shared_ptr<Completion> goodbye_ = std::make_shared<Completion>(1);  // done when the own goodbye is in the log
  std::atomic<uint32_t> own_bell_{0};                                      // the bell when there are no neighbours
  int doorbell_fd_ = -1;
  int timer_fd_ = -1;  // wakes the background thread for a look that somebody put off
  std::atomic<bool> look_armed_{false};
  int nudge_fd_ = -1;                // wakes a waiting thread that sleeps on descriptors, and nobody else
  std::atomic<bool> missed_{false};  // the background thread saw something, but had not the role

  // ---- holder of the role only
  Transports transports_;
  ProcessSets sets_{&transports_};
  Timeline timeline_;
  BackendRegistry backends_;
  ControlLinks links_;
  std::unique_ptr<Node> node_;
  Executor executor_;
  std::shared_ptr<ProcessSets::Set> everybody_;
  std::unique_ptr<Express> express_;  // null: the ranks are on several hosts, or too many
  std::map<int, Peer> peers_;
  Sleeper background_sleeper_, waiter_sleeper_;
  bool sockets_ = false;  // a waiting thread must watch them too
  std::vector<std::pair<Completion::Callback, Status>> callbacks_;
  std::vector<Submission> taken_;
  std::vector<Action> obeying_;
  bool left_ = false;                              // the own goodbye is in the log
  std::vector<std::shared_ptr<Completion>> held_;  // of batches that a neighbour gave up, until its reason is here
  Status held_why_;                                // in case it never comes
  double held_until_ = 0;                          // 0: nothing is held
  int suspects_ = 0;                               // peers with suspected_at set
  double last_movement_s_ = 0;                     // of the running batch; 0: not measured yet
  int waiting_ = 0;                                // waiting threads, for the linger rule
  std::atomic<uint64_t> batches_{0}, tensors_{0}, sleeps_{0};  // counters for DescribeJson

  std::thread background_thread_;

  void SetBell(BellState state);
  void RingSelf();
  void NudgeDriver();
};

}  // namespace hvd
