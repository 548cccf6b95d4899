#include "negotiation/stall/records.h"

#include <string>
#include <utility>

#include "negotiation/values/op_text.h"

namespace hvd::negotiation {
namespace {

enum StateFlags : uint8_t { kPresent = 1, kOwnMissing = 2 };

}  // namespace

void WriteStallNotice(const StalledTally& t, double now, ByteWriter* w) {
  w->Varint(static_cast<uint32_t>(t.key.set));
  w->U8(static_cast<uint8_t>(t.type));
  w->Text(t.key.name);
  w->F64(now - t.since);
  w->U64(t.group_hash);
  w->Varint(static_cast<uint32_t>(t.group_size));
}

StalledTally ReadStallNotice(ByteReader* r, double now) {
  StalledTally t;
  t.key.set = static_cast<int32_t>(r->Varint32(INT32_MAX));
  const uint8_t type = r->U8();
  if (!IsValidType(type)) r->Fail();
  t.type = static_cast<OpType>(type);
  t.key.name = r->Text();
  const double age = r->F64();
  if (!(age >= 0)) r->Fail();
  t.since = now - age;
  t.group_hash = r->U64();
  t.group_size = static_cast<int32_t>(r->Varint32(INT32_MAX));
  return t;
}

void WriteStallQuestion(const StallQuestion& question, ByteWriter* w) {
  w->Varint(question.number);
  w->Varint(question.names.size());
  for (const NameKey& key : question.names) {
    w->Varint(static_cast<uint32_t>(key.set));
    w->Text(key.name);
  }
}

StallQuestion ReadStallQuestion(ByteReader* r) {
  StallQuestion question;
  question.number = r->Varint();
  const size_t n = r->Count(2);
  for (size_t i = 0; i < n && r->ok(); ++i) {
    NameKey& key = question.names.emplace_back();
    key.set = static_cast<int32_t>(r->Varint32(INT32_MAX));
    key.name = r->Text();
  }
  return question;
}

void WriteStallAnswer(const StallAnswer& answer, ByteWriter* w) {
  w->Varint(answer.number);
  w->Varint(static_cast<uint32_t>(answer.rank));
  w->Varint(answer.states.size());
  for (const StallState& s : answer.states) {
    w->U8(static_cast<uint8_t>((s.present ? kPresent : 0) | (s.own_missing ? kOwnMissing : 0)));
    w->Varint(s.missing.size());
    for (const int child : s.missing) w->Varint(static_cast<uint32_t>(child));
  }
}

StallAnswer ReadStallAnswer(ByteReader* r, int job_size) {
  StallAnswer answer;
  answer.number = r->Varint();
  answer.rank = static_cast<int>(r->Varint32(INT32_MAX));
  const size_t n = r->Count(2);
  for (size_t i = 0; i < n && r->ok(); ++i) {
    const uint8_t flags = r->U8();
    StallState s;
    s.present = (flags & kPresent) != 0;
    s.own_missing = (flags & kOwnMissing) != 0;
    const size_t children = r->Count();
    for (size_t k = 0; k < children; ++k) s.missing.push_back(static_cast<int>(r->Varint32(job_size - 1)));
    answer.states.push_back(std::move(s));
  }
  return answer;
}

}  // namespace hvd::negotiation
