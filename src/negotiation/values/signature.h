// Signature: everything on which all members must agree besides the name, as one list of fields: what the negotiation
// compares, what the express path hashes (engine/entry/express_path.h), and what Validate says in words when members
// differ. Pure.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "base/status.h"
#include "negotiation/values/op_text.h"
#include "negotiation/values/rank_set.h"
#include "negotiation/values/request.h"

namespace hvd::negotiation {

// allgather and alltoall leave out the first extent: sizes are exchanged in the data phase.
inline constexpr bool FirstExtentIsFree(OpType t) { return t == OpType::kAllgather || t == OpType::kAlltoall; }
inline constexpr bool HasReduceOp(OpType t) { return t == OpType::kAllreduce || t == OpType::kReducescatter; }
inline constexpr bool HasRoot(OpType t) { return t == OpType::kBroadcast || t == kRemoveSetType; }

// A view: what it was made of must outlive it. Inline: a part of the hot path.
struct Signature {
  OpType type;
  DType dtype;
  ReduceOp op;                   // kSum where the type has none: requests are made so
  int32_t root;                  // 0 where the type has none
  uint64_t prescale, postscale;  // the bits
  uint64_t group_hash = 0;
  int32_t group_size = 0, group_index = 0;
  uint32_t dims;
  bool on_device = false;
  std::span<const int64_t> extents;  // but for a first one that is free

  explicit Signature(const Request& r)
      : Signature(r.type, r.dtype, r.op, r.root, r.prescale, r.postscale, std::span(r.shape)) {
    group_hash = r.group_hash;
    group_size = r.group_size;
    group_index = r.group_index;
    on_device = r.on_device;
  }
  // Of an operation alone, in no group.
  explicit Signature(const hvd_op& op)
      : Signature(static_cast<OpType>(op.type), static_cast<DType>(op.dtype), static_cast<ReduceOp>(op.reduce_op),
                  op.root_rank, op.prescale, op.postscale, std::span(op.shape, static_cast<size_t>(op.ndim))) {
    if (!HasReduceOp(type)) this->op = ReduceOp::kSum;
    if (!HasRoot(type)) root = 0;
    on_device = op.place != kOnHost;
  }

  // The list: whether `visit` says yes to every field. The extents, whose number differs, come behind it.
  template <class Visit>
  static constexpr bool AllFields(Visit visit) {
    using S = Signature;
    return visit(&S::type) && visit(&S::dtype) && visit(&S::op) && visit(&S::root) && visit(&S::prescale) &&
           visit(&S::postscale) && visit(&S::group_hash) && visit(&S::group_size) && visit(&S::group_index) &&
           visit(&S::dims) && visit(&S::on_device);
  }
  bool SameShape(const Signature& other) const {
    return dims == other.dims && std::equal(extents.begin(), extents.end(), other.extents.begin());
  }
  bool SameFactors(const Signature& other) const { return prescale == other.prescale && postscale == other.postscale; }
  bool operator==(const Signature& other) const {
    return AllFields([&](auto field) { return this->*field == other.*field; }) && SameShape(other);
  }
  // A hash of the fields and the name.
  uint64_t Fingerprint(std::string_view name) const;

 private:
  Signature(OpType t, DType d, ReduceOp o, int32_t root_rank, double pre, double post, std::span<const int64_t> shape)
      : type(t),
        dtype(d),
        op(o),
        root(root_rank),
        prescale(std::bit_cast<uint64_t>(pre)),
        postscale(std::bit_cast<uint64_t>(post)),
        dims(static_cast<uint32_t>(shape.size())),
        extents(FirstExtentIsFree(t) && !shape.empty() ? shape.subspan(1) : shape) {}
};

inline bool SameSignature(const Request& a, const Request& b) { return Signature(a) == Signature(b); }
inline bool SameFactors(const Request& a, const Request& b) { return Signature(a).SameFactors(Signature(b)); }

// What some ranks sent: a request, or (request == nullptr) their refusal.
struct Variant {
  std::shared_ptr<const Request> request;
  std::string refusal;
  RankSet ranks;
};

struct TallyView {
  OpType type;  // for the subject, where nobody sent a request
  const std::string& name;
  int process_set;
  const std::vector<Variant>& variants;  // distinct, at least one
  RankSet absent;                        // members that take part as joined ranks, with nothing of their own
};

// May the members run this together? The checks of a completed tally, in the order that users of Horovod know. The text
// names the ranks and values that differ and is sent to every member.
Status Validate(const TallyView& tally);

}  // namespace hvd::negotiation
