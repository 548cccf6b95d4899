#include "negotiation/values/pair.h"

#include <charconv>

#include "base/text.h"

namespace hvd::negotiation {
namespace {

constexpr size_t kMostLabelShown = 200;  // bytes of a label in a message

// What is left to read of a name.
class Rest {
 public:
  explicit Rest(std::string_view text) : text_(text) {}
  bool Skip(std::string_view what) {
    if (!text_.starts_with(what)) return false;
    text_.remove_prefix(what.size());
    return true;
  }
  template <class Number>
  bool Read(Number* number) {
    if (text_.empty() || text_[0] < '0' || text_[0] > '9') return false;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), *number);
    if (error != std::errc()) return false;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return true;
  }
  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

struct Parts {
  OpType type = OpType::kSend;
  Pair pair;
  uint64_t number = 0;  // 0: it is a pair's name
  std::string_view shared, label;
};

std::optional<Parts> Read(std::string_view name) {
  Parts parts;
  Rest rest(name);
  if (rest.Skip("recv ")) {
    parts.type = OpType::kRecv;
  } else if (!rest.Skip("send ")) {
    return std::nullopt;
  }
  const std::string_view shared = rest.text();
  if (!rest.Read(&parts.pair.from) || !rest.Skip("->") || !rest.Read(&parts.pair.to)) return std::nullopt;
  if (rest.text().empty()) return parts;
  if (!rest.Skip(" #") || !rest.Read(&parts.number) || parts.number == 0) return std::nullopt;
  parts.shared = shared.substr(0, shared.size() - rest.text().size());
  if (rest.Skip(" ")) {
    parts.label = rest.text();
  } else if (!rest.text().empty()) {
    return std::nullopt;
  }
  return parts;
}

}  // namespace

std::string PairName(const Pair& pair) { return "send " + std::to_string(pair.from) + "->" + std::to_string(pair.to); }

std::optional<Pair> ReadPair(std::string_view name) {
  const std::optional<Parts> parts = Read(name);
  if (!parts || parts->type != OpType::kSend || parts->number != 0) return std::nullopt;
  return parts->pair;
}

std::string OwnName(OpType type, const Pair& pair, uint64_t number, std::string_view label) {
  std::string name = std::string(NameOf(type)) + " " + std::to_string(pair.from) + "->" + std::to_string(pair.to) +
                     " #" + std::to_string(number);
  if (!label.empty()) name += " " + std::string(label);
  return name;
}

std::string PairText(std::string_view name) {
  const std::optional<Parts> parts = Read(name);
  if (!parts) return "";
  std::string text = NameOf(parts->type);
  if (parts->number != 0) text += " #" + std::to_string(parts->number);
  text += " from rank " + std::to_string(parts->pair.from) + " to rank " + std::to_string(parts->pair.to);
  if (!parts->label.empty()) text += " ('" + Shortened(parts->label, kMostLabelShown) + "')";
  return text;
}

std::optional<Pair> RanksOf(std::string_view own_name) {
  const std::optional<Parts> parts = Read(own_name);
  if (!parts || parts->number == 0) return std::nullopt;
  return parts->pair;
}

std::string_view SharedPart(std::string_view own_name) {
  const std::optional<Parts> parts = Read(own_name);
  return parts ? parts->shared : std::string_view();
}

}  // namespace hvd::negotiation
