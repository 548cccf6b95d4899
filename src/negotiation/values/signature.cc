#include "negotiation/values/signature.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "negotiation/values/op_text.h"
#include "negotiation/values/pair.h"

namespace hvd::negotiation {
namespace {

uint64_t Mix(uint64_t hash, uint64_t word) {
  // Multiplication spreads upward, the shift brings it back down (as in MurmurHash3's finaliser). Names are not
  // adversarial: a rank that wants to harm the job can do so with its data.
  hash = (hash ^ word) * 0x9ddfea08eb382d69ull;
  return hash ^ (hash >> 29);
}

constexpr size_t kMaxListed = 8;  // values named in one message

using Describe = std::function<std::string(const Request&)>;

// "rank 3 sent float16 [512, 64], ranks 0-2 sent float32 [512, 64]": the odd ones out first.
std::string WhoSentWhat(const std::vector<Variant>& variants, const Describe& describe) {
  std::map<std::string, RankSet> by_value;
  for (const Variant& v : variants) {
    if (v.request) by_value[describe(*v.request)].AddAll(v.ranks);
  }
  std::vector<std::pair<std::string, RankSet>> values(by_value.begin(), by_value.end());
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) {
    const int x = a.second.count(), y = b.second.count();
    return x != y ? x < y : a.second.spans() > b.second.spans();
  });
  std::string out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ", ";
    if (i == kMaxListed && values.size() > kMaxListed + 1) {
      return out + "and " + std::to_string(values.size() - i) + " more values from other ranks";
    }
    out += values[i].second.Text() + " sent " + values[i].first;
  }
  return out;
}

Status Mismatch(const std::string& subject, const TallyView& t, const Describe& describe, const char* remedy) {
  return {Code::kMismatch, subject + ": " + WhoSentWhat(t.variants, describe) + "; all ranks must " + remedy + "."};
}

std::string Number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", v);
  for (int digits = 1; digits < 17; ++digits) {  // the shortest text that means the same number
    char shorter[32];
    std::snprintf(shorter, sizeof shorter, "%.*g", digits, v);
    if (std::strtod(shorter, nullptr) == v) return shorter;
  }
  return text;
}

std::string TypeAndShape(const Request& r) { return std::string(NameOf(r.dtype)) + " " + ShapeText(r.shape); }

std::string ShapeButFirst(const Request& r) {
  if (r.shape.empty()) return std::string(NameOf(r.dtype)) + " []";
  std::string text = std::string(NameOf(r.dtype)) + " [*";
  for (size_t i = 1; i < r.shape.size(); ++i) text += ", " + std::to_string(r.shape[i]);
  return text + "]";
}

std::string GroupText(const Request& r) {
  if (r.group_hash == 0) return "it alone";
  char hash[24];
  std::snprintf(hash, sizeof hash, "%08x", static_cast<unsigned>(r.group_hash ^ (r.group_hash >> 32)));
  return "it as tensor " + std::to_string(r.group_index + 1) + " of a group of " + std::to_string(r.group_size) +
         " (names' hash " + hash + ")";
}

bool Differs(const TallyView& t, bool (*same)(const Request&, const Request&)) {
  const Request* first = nullptr;
  for (const Variant& v : t.variants) {
    if (!v.request) continue;
    if (first && !same(*first, *v.request)) return true;
    if (!first) first = v.request.get();
  }
  return false;
}

Status CheckRefusals(const TallyView& t) {
  std::string reasons;
  size_t n = 0;
  for (const Variant& v : t.variants) {
    if (v.request) continue;
    if (++n > kMaxListed) continue;
    if (n > 1) reasons += "; ";
    reasons += v.ranks.Text() + " refused it: " + v.refusal;
  }
  if (n == 0) return {};
  if (n > kMaxListed) reasons += "; and " + std::to_string(n - kMaxListed) + " more reasons from other ranks";
  return {Code::kMismatch, Subject(t.type, t.name, t.process_set) + ": " + reasons};
}

Status CheckSetChange(const TallyView& t, const Request& r) {
  if (!Differs(t, SameSignature)) return {};
  auto describe = [](const Request& q) {
    if (q.type == kRemoveSetType) return "remove of process set " + std::to_string(q.root);
    return "ranks " + ShapeText(q.shape);
  };
  return Mismatch(OpText(r.type), t, describe, "make the same changes of process sets in the same order");
}

bool SameDType(const Request& a, const Request& b) { return a.dtype == b.dtype; }
bool SameType(const Request& a, const Request& b) { return a.type == b.type; }
bool SameShape(const Request& a, const Request& b) { return Signature(a).SameShape(Signature(b)); }
bool SameOp(const Request& a, const Request& b) { return Signature(a).op == Signature(b).op; }
bool SameRoot(const Request& a, const Request& b) { return Signature(a).root == Signature(b).root; }
bool SamePlace(const Request& a, const Request& b) { return a.on_device == b.on_device; }
bool SameGroup(const Request& a, const Request& b) {
  return a.group_hash == b.group_hash && a.group_size == b.group_size && a.group_index == b.group_index;
}

// A send and its recv.
Status CheckPair(const TallyView& t, const Pair& pair, const std::string& subject) {
  if (!Differs(t, SameSignature)) return {};
  std::string sent, received;
  for (const Variant& v : t.variants) {
    if (v.ranks.Contains(pair.from)) sent = TypeAndShape(*v.request);
    if (v.ranks.Contains(pair.to)) received = TypeAndShape(*v.request);
  }
  return {Code::kMismatch, subject + ": rank " + std::to_string(pair.from) + " sent " + sent + ", rank " +
                               std::to_string(pair.to) + " receives " + received +
                               "; both must pass the same dtype and shape."};
}

// dtype, type, shape: common to all operations on tensors.
Status CheckTensor(const TallyView& t, const Request& r, const std::string& subject) {
  const bool free_rows = FirstExtentIsFree(r.type);
  const char* same_tensor = free_rows ? "pass the same dtype and the same shape but for the first dimension"
                                      : "pass the same dtype and shape";
  const Describe tensor = free_rows ? ShapeButFirst : TypeAndShape;
  if (Differs(t, SameDType)) return Mismatch(subject, t, tensor, same_tensor);
  if (Differs(t, SameType)) {
    return Mismatch(
        "tensor '" + t.name + "'", t, [](const Request& q) { return std::string(OpText(q.type)); },
        "call the same operation under one name");
  }
  if (Differs(t, SameShape)) return Mismatch(subject, t, tensor, same_tensor);
  return {};
}

// factors, operator, root, group, place.
Status CheckParameters(const TallyView& t, const std::string& subject) {
  if (Differs(t, SameFactors)) {
    auto factors = [](const Request& q) {
      return "prescale_factor " + Number(q.prescale) + " and postscale_factor " + Number(q.postscale);
    };
    return Mismatch(subject, t, factors, "pass the same factors");
  }
  if (Differs(t, SameOp)) {
    return Mismatch(subject, t, [](const Request& q) { return std::string("op ") + NameOf(q.op); }, "pass the same op");
  }
  if (Differs(t, SameRoot)) {
    return Mismatch(
        subject, t, [](const Request& q) { return "root rank " + std::to_string(q.root); }, "pass the same root rank");
  }
  if (Differs(t, SameGroup)) {
    return Mismatch(subject, t, GroupText, "put it into the same group, with the same names in the same order");
  }
  if (Differs(t, SamePlace)) {
    auto place = [](const Request& q) {
      return std::string(q.on_device ? "a tensor on a GPU" : "a tensor in host memory");
    };
    return Mismatch(subject, t, place, "keep it on the same kind of device");
  }
  return {};
}

// A joined rank contributes the neutral element; a factor would multiply that, too, and so change the result.
bool FactorReachesStandIns(const Request& r) {
  if (RowOf(r.op).neutral == ReduceRow::kOne) return r.prescale != 1.0;
  return RowOf(r.op).orders && !(r.prescale > 0);
}

// What holds for each rank by itself, and joined ranks.
Status CheckRules(const TallyView& t, const Request& r, const std::string& subject) {
  if (!t.absent.empty() && r.type != OpType::kAllreduce) {
    return {Code::kMismatch, subject + ": " + t.absent.Text() + (t.absent.count() == 1 ? " has" : " have") +
                                 " joined; only allreduce can run while a rank has joined."};
  }
  if (!t.absent.empty() && FactorReachesStandIns(r)) {
    return {Code::kMismatch, subject + ": " + t.absent.Text() + (t.absent.count() == 1 ? " has" : " have") +
                                 " joined; op " + NameOf(r.op) + " with prescale_factor " + Number(r.prescale) +
                                 " cannot run while a rank has joined. Multiply the tensor before the call."};
  }
  const bool by_rows = FirstExtentIsFree(r.type) || r.type == OpType::kReducescatter;
  if (by_rows && r.shape.empty()) {
    return {Code::kMismatch, subject + ": all ranks sent a scalar; the tensor must have at least one dimension."};
  }
  return {};
}

}  // namespace

uint64_t Signature::Fingerprint(std::string_view name) const {
  uint64_t hash = 0x8b72e3c9d5a1f04dull, packed = 0;
  int used = 0;  // bits of `packed`: fields share a word where they fit, so that fewer words are mixed
  AllFields([&](auto field) {
    constexpr int kBits = 8 * sizeof(this->*field);
    if (used + kBits > 64) {
      hash = Mix(hash, packed);
      packed = 0;
      used = 0;
    }
    packed |= static_cast<uint64_t>(this->*field) << (64 - kBits) >> (64 - kBits - used);
    used += kBits;
    return true;
  });
  hash = Mix(hash, packed);
  for (const int64_t extent : extents) hash = Mix(hash, static_cast<uint64_t>(extent));
  hash = Mix(hash, name.size());
  for (size_t at = 0; at < name.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, name.data() + at, std::min(sizeof word, name.size() - at));
    hash = Mix(hash, word);
  }
  return hash;
}

Status Validate(const TallyView& t) {
  HVD_TRY(CheckRefusals(t));
  const Request& r = *t.variants.front().request;
  const std::string subject = Subject(r.type, t.name, t.process_set);
  if (IsControl(r.type)) {
    HVD_TRY(CheckSetChange(t, r));
  } else if (const std::optional<Pair> pair = PairOf(t.name)) {
    return CheckPair(t, *pair, subject);
  } else {
    HVD_TRY(CheckTensor(t, r, subject));
    HVD_TRY(CheckParameters(t, subject));
  }
  return CheckRules(t, r, subject);
}

}  // namespace hvd::negotiation
