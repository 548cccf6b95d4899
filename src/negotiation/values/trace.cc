#include "negotiation/values/trace.h"

#include <cmath>

namespace hvd::negotiation {
namespace {

enum TraceFlags : uint8_t { kOn = 1, kMarkCycles = 2 };

int ReadRankOf(ByteReader* r, int size) {
  const auto rank = static_cast<int>(r->Varint32(INT32_MAX));
  if (rank >= size) r->Fail();
  return r->ok() ? rank : 0;
}

constexpr double kMostTime = 1e12;  // seconds; differences and microseconds of such times are numbers too

double ReadTime(ByteReader* r) {
  const double time = r->F64();
  if (!(std::abs(time) <= kMostTime)) r->Fail();
  return r->ok() ? time : 0;
}

}  // namespace

void Write(const TraceOrder& order, ByteWriter* w) {
  w->Varint(order.number);
  w->U8(static_cast<uint8_t>((order.on ? kOn : 0) | (order.mark_cycles ? kMarkCycles : 0)));
  w->Signed(order.base_us);
}

TraceOrder ReadTraceOrder(ByteReader* r) {
  TraceOrder order;
  order.number = r->Varint32();
  const uint8_t flags = r->U8();
  if (flags > (kOn | kMarkCycles)) r->Fail();
  order.on = (flags & kOn) != 0;
  order.mark_cycles = (flags & kMarkCycles) != 0;
  order.base_us = r->Signed();
  return order;
}

void Write(const TracePiece& piece, ByteWriter* w) {
  w->Varint(static_cast<uint32_t>(piece.rank));
  w->Varint(piece.number);
  w->U8(static_cast<uint8_t>(piece.kind));
  w->Varint(piece.events);
  w->Text(piece.text);
}

TracePiece ReadTracePiece(ByteReader* r, int size) {
  TracePiece piece;
  piece.rank = ReadRankOf(r, size);
  piece.number = r->Varint32();
  const uint8_t kind = r->U8();
  if (kind > static_cast<uint8_t>(TracePiece::Kind::kEnd)) r->Fail();
  piece.events = r->Varint32();
  const std::string_view text = r->Text();
  if (text.size() > kMostTraceBytes) r->Fail();
  if (!r->ok()) return piece;
  piece.kind = static_cast<TracePiece::Kind>(kind);
  piece.text = text;
  return piece;
}

void Write(const ClockQuestion& question, ByteWriter* w) {
  w->F64(question.asked_s);
  w->Varint(question.hosts.size());
  for (const HostClock& host : question.hosts) {
    w->Varint(static_cast<uint32_t>(host.rank));
    w->F64(host.offset_s);
    w->F64(host.error_s);
  }
}

ClockQuestion ReadClockQuestion(ByteReader* r, int size) {
  ClockQuestion question;
  question.asked_s = ReadTime(r);
  question.hosts.resize(r->Count(17));
  for (HostClock& host : question.hosts) {
    host.rank = ReadRankOf(r, size);
    host.offset_s = ReadTime(r);
    host.error_s = ReadTime(r);
  }
  return question;
}

void Write(const ClockAnswer& answer, ByteWriter* w) {
  w->Varint(static_cast<uint32_t>(answer.rank));
  w->F64(answer.sent_s);
  w->F64(answer.down_s);
}

ClockAnswer ReadClockAnswer(ByteReader* r, int size) {
  ClockAnswer answer;
  answer.rank = ReadRankOf(r, size);
  answer.sent_s = ReadTime(r);
  answer.down_s = ReadTime(r);
  return answer;
}

}  // namespace hvd::negotiation
