#include "negotiation/stall/protocol.h"

#include <optional>
#include <string>
#include <utility>

#include "negotiation/stall/records.h"
#include "negotiation/stall/report.h"
#include "negotiation/stall/survey.h"

namespace hvd::negotiation {

void StallProtocol::Observe(double now) {
  const bool own = at_.marks->own_waiting() > 0 && !at_.place->root();
  inspector_.Observe(own || at_.marks->incomplete() > 0, now);
}

double StallProtocol::deadline() const { return query_.running() ? query_.deadline() : inspector_.deadline(); }

// ---- looking

void StallProtocol::Scan(double now) {
  if (!inspector_.rules().enabled() || at_.abort->over() || now < inspector_.scan_at() || query_.running()) return;
  std::vector<StalledTally> old = inspector_.Old(Incomplete(*at_.marks), now);
  if (!at_.place->root()) {
    for (const StalledTally& t : old) SendNotice(t, now);
    return WatchParent(now);
  }
  old = inspector_.TakeQuestion(std::move(old), now);
  if (old.empty()) return;
  ByteWriter w = at_.out->Down(LogRecord::kStallQuery);
  WriteStallQuestion(query_.Begin(std::move(old), now, inspector_.rules().patience_s()), &w);
}

void StallProtocol::SendNotice(const StalledTally& tally, double now) {
  ByteWriter w = at_.out->Up(UpRecord::kStallNotice);
  WriteStallNotice(tally, now, &w);
}

void StallProtocol::WatchParent(double now) {
  const std::optional<StalledTally> own = OldestOwn(*at_.marks);
  const int parent = at_.place->parent;
  if (!own || at_.departures->Left(parent)) return;
  const ParentWatch::Look look = parent_.At(own->since, now);
  inspector_.ScanBy(look.again_at);
  if (look.ask) SendNotice(*own, now);
  if (!look.silent) return;
  const std::string text = own->Text() + " waits for " + SecondsText(now - own->since) + ": rank " +
                           std::to_string(parent) + (parent == 0 ? "" : ", or a rank between it and rank 0,") +
                           " gives no answer (stopped?)";
  at_.results->Add(Stalled{});
  at_.results->Warn(text + ".", look.over ? LogLevel::kError : LogLevel::kWarning);
  if (look.over) at_.abort->Raise({Code::kTimeout, text + "; HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is over."});
}

// ---- questions and answers

void StallProtocol::Notice(ByteReader* r, double now) {
  StalledTally tally = ReadStallNotice(r, now);
  if (!r->ok()) return;
  if (!at_.place->root()) return SendNotice(tally, now);
  if (inspector_.Notice(std::move(tally), now) || query_.running()) return;
  ByteWriter w = at_.out->Down(LogRecord::kStallQuery);
  WriteStallQuestion({}, &w);  // a sign of life
}

std::vector<StallState> StallProtocol::States(const std::vector<NameKey>& names) const {
  std::vector<StallState> states;
  states.reserve(names.size());
  for (const NameKey& key : names) states.push_back(StateOf(key, *at_.marks, *at_.sets, *at_.place));
  return states;
}

void StallProtocol::AnswerQuery(ByteReader* r) {
  const StallQuestion question = ReadStallQuestion(r);
  if (!r->ok() || question.names.empty()) return;
  at_.results->Add(Stalled{});
  if (at_.place->root()) return query_.AnswerSelf(States(question.names));
  ByteWriter w = at_.out->Up(UpRecord::kStallReport);
  WriteStallAnswer({question.number, at_.place->rank, States(question.names)}, &w);
}

Status StallProtocol::Report(int source, ByteReader* r, double now, std::vector<Clash>* clashes) {
  StallAnswer answer = ReadStallAnswer(r, at_.place->size);
  if (!r->ok()) return {};
  if (!at_.place->below[source].Contains(answer.rank)) {
    return {Code::kInternal, "it answers for rank " + std::to_string(answer.rank) + ", which is not below"};
  }
  if (!at_.place->root()) {
    ByteWriter w = at_.out->Up(UpRecord::kStallReport);
    WriteStallAnswer(answer, &w);
  } else if (query_.Answer(answer.number, answer.rank, std::move(answer.states)) && query_.AllAnswered()) {
    *clashes = Finish(now);
  }
  return {};
}

// ---- the root's verdict

std::vector<Clash> StallProtocol::FinishDue(double now) {
  if (at_.abort->over() || now < query_.deadline()) return {};
  return Finish(now);
}

std::vector<Clash> StallProtocol::Finish(double now) {
  // The root's own state is taken now: what completed meanwhile waits for nobody.
  std::vector<NameKey> names;
  for (const StalledTally& t : query_.asked()) names.push_back(t.key);
  query_.AnswerSelf(States(names));
  query_.End();
  StallReport report = WriteStallReport(query_, inspector_.rules(), hosts_, now);
  const bool over = !report.shutdown.empty();
  if (!report.text.empty()) at_.results->Warn(report.text, over ? LogLevel::kError : LogLevel::kWarning);
  if (over) {
    at_.abort->Raise({Code::kTimeout, report.shutdown});
    return {};
  }
  std::vector<RankSet> submitters;
  submitters.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) submitters.push_back(Submitters(i));
  return FindClashes(query_.asked(), submitters);
}

// The ranks that submitted a tally that was asked about; empty: it is over, or a rank gave no answer.
RankSet StallProtocol::Submitters(size_t asked) const {
  const NameKey& key = query_.asked()[asked].key;
  const StallQuery::Missing missing = query_.Find(asked);
  if (!at_.sets->FindUsable(key.set) || !missing.silent.empty() || !missing.waits()) return {};
  const RankSet ranks = at_.sets->MembersOf(key).Minus(missing.ranks);
  return key.set == 0 ? ranks.Minus(at_.joins->ranks()) : ranks;
}

}  // namespace hvd::negotiation
