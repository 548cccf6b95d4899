#include "negotiation/direct.h"

#include <string>
#include <utility>

namespace hvd::negotiation {
namespace {

RankSet RanksOf(const std::vector<Payload>& payloads) {
  RankSet ranks;
  for (const Payload& p : payloads) ranks.Add(p.rank);
  return ranks;
}

}  // namespace

Status Direct::Receive(int from_rank, ByteReader* r, double now) {
  while (!r->AtEnd()) {
    const ByteReader before = *r;
    bool ahead = false;
    Status status = ReceiveOne(from_rank, r, &ahead, now);
    if (!status.ok() || !r->ok()) return status;
    if (ahead) {
      *r = before;
      return {};
    }
  }
  return {};
}

Status Direct::ReceiveOne(int from_rank, ByteReader* r, bool* ahead, double now) {
  const uint32_t id = r->Varint32();
  const Turn turn = ReadTurn(r);
  std::vector<Payload> payloads = ReadPayloads(r, at_.place->size);
  if (!r->ok()) return {};
  const Turn here = at_.marks->TurnOf(id);
  *ahead = turn > here;
  if (turn != here) return {};  // ahead; or of an older turn, which the log has answered
  if (id >= at_.marks->cache().size() || !at_.marks->IsDirect(id)) {
    return Wrong("it contributes to id " + std::to_string(id) + ", which expects nothing");
  }
  if (at_.place->leads()) return FromLeader(from_rank, id, std::move(payloads), now);
  return FromParent(id, std::move(payloads));
}

Status Direct::FromLeader(int from_rank, uint32_t id, std::vector<Payload> payloads, double now) {
  const std::string& name = at_.marks->cache().at(id).request->name;
  if (RanksOf(payloads) != at_.place->host_of[at_.place->LeaderNumber(from_rank)]) {
    return Wrong("its contribution to '" + name + "' is not that of the ranks of its host");
  }
  if (at_.marks->HasBrought(id, from_rank)) return Wrong("it contributes to '" + name + "' twice");
  if (!at_.place->root()) {
    at_.marks->BringBeside(id, std::move(payloads));
  } else if (!at_.marks->MarkOfChild(id, at_.place->SourceOfNeighbour(from_rank), std::move(payloads), now)) {
    return Wrong("it marks '" + name + "' twice");
  }
  return {};
}

Status Direct::FromParent(uint32_t id, std::vector<Payload> payloads) {
  const CachedRequest& s = at_.marks->cache().at(id);
  if (RanksOf(payloads) != at_.sets->at(s.process_set).ranks) {
    return Wrong("it ends '" + s.request->name + "' without the contribution of every member");
  }
  if (s.state != CachedRequest::kComplete || s.own_ticket == 0) {
    return Wrong("it ends '" + s.request->name + "', which this rank has not submitted");
  }
  Done(id, std::move(payloads));
  return {};
}

void Direct::Settle() {
  for (const uint32_t id : at_.marks->TakeWhole()) {
    std::vector<Payload> payloads = at_.marks->TakePayloadsOfAll(id);
    if (!payloads.empty()) Done(id, std::move(payloads));
  }
}

void Direct::Done(uint32_t id, std::vector<Payload> payloads) {
  const Turn turn = at_.marks->TurnOf(id);
  if (!at_.place->near.empty()) {
    ByteWriter w = at_.out->Near();
    w.Varint(id);
    WriteTurn(turn, &w);
    WritePayloads(payloads, &w);
  }
  Exchanged done;
  done.entry.request = at_.marks->cache().at(id).request;
  done.entry.ticket = at_.marks->UseDirect(id);
  done.payloads = std::move(payloads);
  if (at_.place->leads()) at_.out->Done(id, at_.marks->TurnOf(id));
  at_.stall->Settled(done.entry.request->key());
  at_.results->Add(std::move(done));
}

}  // namespace hvd::negotiation
