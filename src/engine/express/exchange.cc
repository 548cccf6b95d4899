#include "engine/express/exchange.h"

#include <string>

#include "engine/express/small_collective.h"
#include "negotiation/values/tree.h"

namespace hvd::engine {
namespace {

// Data of all members together. Two ranks send one another what a plan over channels would send, too; with more, every
// host gets all of it, and of many the root sends it to each of its children.
constexpr size_t MostBytes(size_t ranks) {
  return ranks == 2 ? 32 << 10 : ranks <= negotiation::kMostDirectHosts ? 16 << 10 : 4 << 10;
}
// The same with the numbers that go along with an alltoall, which grow with the square of the ranks.
constexpr size_t MostBroughtBytes(size_t ranks) { return MostBytes(ranks) + (4 << 10); }
static_assert(MostBroughtBytes(2) <= negotiation::kMostPayloadBytes);

}  // namespace

std::shared_ptr<const std::vector<std::byte>> PayloadOf(const hvd_op& op, const collective::Group& group) {
  if (op.process_set != 0 || op.place != kOnHost || op.type < HVD_ALLREDUCE || op.type > HVD_BARRIER) return nullptr;
  if (op.name == nullptr || op.name[0] == '\0') return nullptr;  // negotiated in full each time
  if (group.one_host() || group.deterministic) return nullptr;
  const SmallCollective small(op, group.index, group.size());
  const auto size = static_cast<size_t>(group.size());
  if (!small.Fits(/*crowded=*/true) || small.bytes() > MostBytes(size) / size) return nullptr;
  if (small.brought_bytes() > MostBroughtBytes(size) / size) return nullptr;
  auto payload = std::make_shared<std::vector<std::byte>>(small.brought_bytes());
  small.Bring(payload->data());
  return payload;
}

Status Combine(const negotiation::Request& agreed, const std::vector<negotiation::Payload>& payloads,
               const collective::Group& group, Submitted* own) {
  hvd_op op = {};
  op.type = static_cast<int32_t>(agreed.type);
  op.dtype = static_cast<int32_t>(agreed.dtype);
  op.reduce_op = static_cast<int32_t>(agreed.op);
  op.root_rank = agreed.root;
  op.prescale = agreed.prescale;
  op.postscale = agreed.postscale;
  op.input = own->tensor.input;
  op.output = own->tensor.output;
  op.ndim = static_cast<int32_t>(own->tensor.shape.size());
  const std::vector<int64_t> shape = own->tensor.shape;
  op.shape = shape.data();
  const SmallCollective small(op, group.index, group.size());
  std::vector<const std::byte*> places;
  for (const negotiation::Payload& p : payloads) {
    if (!small.Plausible(static_cast<int>(places.size()), p.bytes)) {
      return Status(Code::kInternal, "rank " + std::to_string(p.rank) + " contributed " +
                                         std::to_string(p.bytes.size()) + " bytes to '" + agreed.name +
                                         "', which is not the size of its tensor.");
    }
    places.push_back(p.bytes.data());
  }
  return small.Take(places.data(), &own->tensor);
}

}  // namespace hvd::engine
