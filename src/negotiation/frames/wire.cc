#include "negotiation/frames/wire.h"

#include <memory>
#include <utility>

#include "negotiation/values/new_set.h"
#include "negotiation/values/op_text.h"
#include "negotiation/values/pair.h"

namespace hvd::negotiation {
namespace {

enum RequestFlags : uint8_t { kTransient = 1, kFactors = 2, kGrouped = 4, kOnDevice = 8 };
enum VariantKind : uint8_t { kRequest = 0, kCached = 1, kRefusal = 2 };  // of a kTally record

bool Fit(OpType type, const std::string& name) {
  if (NamesNewSet(name) && type != kAddSetType) return false;
  return (type == OpType::kSend) == PairOf(name).has_value();
}

Status Refused(uint32_t sender, const std::string& what) {
  return {Code::kInternal, "control frame from rank " + std::to_string(sender) + " refused: " + what};
}

}  // namespace

void WriteHeader(const FrameHeader& h, std::byte* at) {
  at[0] = static_cast<std::byte>(kWireVersion);
  at[1] = static_cast<std::byte>(h.direction);
  ByteWriter::StoreLe(at + 2, h.sender);
  ByteWriter::StoreLe(at + 6, h.epoch);
  ByteWriter::StoreLe(at + 14, h.number);
}

Status ReadHeader(std::span<const std::byte> frame, const FrameHeader& expected, FrameHeader* out) {
  const uint32_t from = expected.sender;
  if (frame.size() <= kFrameHeaderBytes) return Refused(from, "it has only " + std::to_string(frame.size()) + " bytes");
  ByteReader r(frame);
  const uint8_t version = r.U8();
  const uint8_t direction = r.U8();
  out->sender = r.U32();
  out->epoch = r.U64();
  out->number = r.U32();
  out->direction = static_cast<Direction>(direction);
  if (version != kWireVersion) {
    return Refused(from, "wire version " + std::to_string(version) + ", here it is " + std::to_string(kWireVersion) +
                             "; all ranks must run the same version");
  }
  if (out->sender != from) return Refused(from, "it says that it comes from rank " + std::to_string(out->sender));
  if (out->epoch != expected.epoch) {
    return Refused(from, "it belongs to epoch " + std::to_string(out->epoch) + ", this rank is in epoch " +
                             std::to_string(expected.epoch));
  }
  if (direction != static_cast<uint8_t>(expected.direction)) return Refused(from, "it goes the wrong way in the tree");
  return {};
}

void WriteRequest(const Request& q, ByteWriter* w) {
  w->Varint(static_cast<uint32_t>(q.process_set));
  w->Text(q.name);
  WriteRequestBody(q, w);
}

void WriteRequestBody(const Request& q, ByteWriter* w) {
  w->U8(static_cast<uint8_t>(q.type));
  w->U8(static_cast<uint8_t>(q.dtype));
  w->U8(static_cast<uint8_t>(q.op));
  const bool factors = q.prescale != 1.0 || q.postscale != 1.0;
  const bool grouped = q.group_hash != 0;
  w->U8(static_cast<uint8_t>((q.transient ? kTransient : 0) | (factors ? kFactors : 0) | (grouped ? kGrouped : 0) |
                             (q.on_device ? kOnDevice : 0)));
  w->Signed(q.root);
  w->Varint(q.shape.size());
  for (int64_t extent : q.shape) w->Signed(extent);
  if (factors) {
    w->F64(q.prescale);
    w->F64(q.postscale);
  }
  if (grouped) {
    w->U64(q.group_hash);
    w->Varint(static_cast<uint32_t>(q.group_size));
    w->Varint(static_cast<uint32_t>(q.group_index));
  }
}

Request ReadRequest(ByteReader* r) {
  Request q;
  q.process_set = static_cast<int32_t>(r->Varint32(INT32_MAX));
  q.name = r->Text();
  ReadRequestBody(r, &q);
  return q;
}

void ReadRequestBody(ByteReader* r, Request* request) {
  Request& q = *request;
  const uint8_t type = r->U8(), dtype = r->U8(), op = r->U8(), flags = r->U8();
  if (!IsValidType(type) || !IsValidDType(dtype) || !IsValidReduceOp(op) || flags > 15) {
    r->Fail();
    return;
  }
  q.type = static_cast<OpType>(type);
  if (!Fit(q.type, q.name)) r->Fail();
  q.dtype = static_cast<DType>(dtype);
  q.op = static_cast<ReduceOp>(op);
  q.transient = (flags & kTransient) != 0;
  q.on_device = (flags & kOnDevice) != 0;
  q.root = static_cast<int32_t>(r->Signed());
  const size_t dims = r->Count();
  q.shape.resize(dims);
  for (int64_t& extent : q.shape) extent = r->Signed();
  if (flags & kFactors) {
    q.prescale = r->F64();
    q.postscale = r->F64();
  }
  if (flags & kGrouped) {
    q.group_hash = r->U64();
    q.group_size = static_cast<int32_t>(r->Varint32(INT32_MAX));
    q.group_index = static_cast<int32_t>(r->Varint32(INT32_MAX));
    if (q.group_hash == 0 || q.group_index >= q.group_size) r->Fail();
  }
}

void WriteRanks(const RankSet& ranks, ByteWriter* w) {
  w->Varint(ranks.spans().size());
  int32_t at = 0;
  for (auto [first, last] : ranks.spans()) {
    w->Varint(static_cast<uint32_t>(first - at));
    w->Varint(static_cast<uint32_t>(last - first));
    at = last + 1;
  }
}

RankSet ReadRanks(ByteReader* r, int size) {
  RankSet ranks;
  const size_t n = r->Count(2);
  int64_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    const int64_t first = at + r->Varint32(INT32_MAX);
    const int64_t last = first + r->Varint32(INT32_MAX);
    if (!r->ok() || last >= size) {
      r->Fail();
      return {};
    }
    ranks.Append(static_cast<int>(first), static_cast<int>(last));
    at = last + 1;
  }
  return ranks;
}

std::vector<DoneDirectly> ReadDone(ByteReader* r) {
  std::vector<DoneDirectly> done(r->Count(3));
  for (DoneDirectly& d : done) {
    d.id = r->Varint32();
    d.next = ReadTurn(r);
  }
  return done;
}

void WriteStatus(const Status& status, ByteWriter* w) {
  w->U8(static_cast<uint8_t>(status.code()));
  w->Text(status.message());
}

Status ReadStatus(ByteReader* r) {
  const uint8_t code = r->U8();
  std::string text(r->Text());
  if (!IsFailure(code)) r->Fail();
  return r->ok() ? Status(static_cast<Code>(code), std::move(text)) : Status(Code::kInternal, "malformed");
}

void WriteTally(const Tally& tally, ByteWriter* w) {
  w->Varint(static_cast<uint32_t>(tally.key.set));
  w->U8(static_cast<uint8_t>(tally.type));
  w->Text(tally.key.name);
  const std::vector<Part> variants = tally.Merged();
  w->Varint(variants.size());
  for (const Part& p : variants) {
    if (!p.request) {
      w->U8(kRefusal);
      w->Text(p.refusal);
      w->U64(p.refused_group);
    } else if (p.id >= 0) {
      w->U8(kCached);
      w->Varint(static_cast<uint32_t>(p.id));
    } else {
      w->U8(kRequest);
      WriteRequestBody(*p.request, w);
    }
    WriteRanks(p.ranks, w);
  }
}

namespace {

Part ReadVariant(const NameKey& key, ByteReader* r, int size) {
  Part part;
  switch (r->U8()) {
    case kRequest: {
      auto request = std::make_shared<Request>();
      request->process_set = key.set;
      request->name = key.name;
      ReadRequestBody(r, request.get());
      if (IsControl(request->type) && key.set != 0) r->Fail();
      part.request = std::move(request);
      break;
    }
    case kCached:
      part.id = static_cast<int32_t>(r->Varint32(INT32_MAX));
      break;
    case kRefusal:
      part.refusal = r->Text();
      part.refused_group = r->U64();
      break;
    default:
      r->Fail();
  }
  part.ranks = ReadRanks(r, size);
  if (part.ranks.empty()) r->Fail();
  return part;
}

}  // namespace

WireTally ReadTally(ByteReader* r, int size) {
  WireTally t;
  t.key.set = static_cast<int32_t>(r->Varint32(INT32_MAX));
  const uint8_t type = r->U8();
  if (!IsValidType(type)) r->Fail();
  t.type = static_cast<OpType>(type);
  t.key.name = r->Text();
  if (!Fit(t.type, t.key.name)) r->Fail();
  const size_t n = r->Count(2);
  if (n == 0) r->Fail();
  for (size_t i = 0; i < n && r->ok(); ++i) t.parts.push_back(ReadVariant(t.key, r, size));
  return t;
}

}  // namespace hvd::negotiation
