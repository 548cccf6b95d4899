#include "collective/widened.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/float8.h"
#include "base/half.h"

namespace hvd::collective {
namespace {

constexpr size_t kTurnElems = 64 << 10;  // some 100 us

struct Tables {
  std::array<uint16_t, 1 << 8> wide;
  std::array<uint8_t, 1 << 16> narrow;
};

template <class Format>
const Tables& TablesOf() {
  static const auto made = [] {
    auto tables = std::make_unique<Tables>();
    for (size_t code = 0; code < tables->wide.size(); ++code)
      tables->wide[code] = Bfloat16FromFloat(Format::ToFloat(static_cast<uint8_t>(code)));
    for (size_t code = 0; code < tables->narrow.size(); ++code)
      tables->narrow[code] = Format::FromFloat(FloatFromBfloat16(static_cast<uint16_t>(code)));
    return tables;
  }();
  return *made;
}

// While it is widened, the batch is one of bfloat16 in memory of its own.
class Wide {
 public:
  explicit Wide(Batch& batch)
      : batch_(batch),
        narrow_(batch.dtype),
        tables_(narrow_ == DType::kFloat8E4m3fn ? TablesOf<Float8E4m3>() : TablesOf<Float8E5m2>()) {}
  ~Wide() { PutBack(); }
  Wide(const Wide&) = delete;
  Wide& operator=(const Wide&) = delete;

  Task Widen() {
    for (Tensor& t : batch_.tensors) {
      auto copy = std::make_unique<Block>(2 * t.elems);
      if (copy->data == nullptr) {
        co_return Status(Code::kResource, "no memory for a copy of 8-bit floats in bfloat16, " +
                                              std::to_string(copy->bytes) +
                                              " bytes; free memory, or pass smaller tensors.");
      }
      auto* const to = reinterpret_cast<uint16_t*>(copy->data);
      for (size_t at = 0; at < t.elems; at += kTurnElems) {
        const size_t until = std::min(at + kTurnElems, t.elems);
        for (size_t i = at; i < until; ++i) to[i] = tables_.wide[std::to_integer<uint8_t>(t.input[i])];
        if (until < t.elems) co_await Yield();
      }
      copies_.push_back(std::move(copy));
    }
    const bool in_place = batch_.type == OpType::kAllreduce;
    for (size_t i = 0; i < copies_.size(); ++i) {
      Tensor& t = batch_.tensors[i];
      std::byte* const copy = copies_[i]->data;
      own_.push_back({std::exchange(t.input, copy), std::exchange(t.output, in_place ? copy : nullptr),
                      std::exchange(t.room, 0), std::exchange(t.giver, nullptr)});
    }
    batch_.dtype = DType::kBfloat16;
    co_return Status();
  }

  Task Narrow() {
    if (batch_.type != OpType::kAllreduce) {
      for (size_t i = 0; i < copies_.size(); ++i) copies_[i] = std::move(batch_.tensors[i].result);
    }
    PutBack();
    for (size_t i = 0; i < copies_.size(); ++i) {
      Tensor& t = batch_.tensors[i];
      const size_t elems = copies_[i]->bytes / 2;
      if (batch_.type != OpType::kAllreduce) HVD_CO_TRY(t.PlaceResult(elems));
      const auto* const from = reinterpret_cast<const uint16_t*>(copies_[i]->data);
      for (size_t at = 0; at < elems; at += kTurnElems) {
        const size_t until = std::min(at + kTurnElems, elems);
        for (size_t k = at; k < until; ++k) t.output[k] = std::byte{tables_.narrow[from[k]]};
        if (until < elems) co_await Yield();
      }
    }
    co_return Status();
  }

 private:
  struct Own {
    const std::byte* input;
    std::byte* output;
    size_t room;
    BlockGiver* giver;
  };
  void PutBack() {
    for (size_t i = 0; i < own_.size(); ++i) {
      Tensor& t = batch_.tensors[i];
      t.input = own_[i].input;
      t.output = own_[i].output;
      t.room = own_[i].room;
      t.giver = own_[i].giver;
    }
    own_.clear();
    batch_.dtype = narrow_;
  }

  Batch& batch_;
  const DType narrow_;
  const Tables& tables_;
  std::vector<std::unique_ptr<Block>> copies_;  // of the tensors, then of the results
  std::vector<Own> own_;                        // what the tensors had, while they are widened
};

}  // namespace

bool SuffersFromSteps(const Batch& batch) {
  const bool reduces = batch.type == OpType::kAllreduce || batch.type == OpType::kReducescatter;
  return reduces && IsFloat8(batch.dtype) && (batch.op == ReduceOp::kSum || batch.op == ReduceOp::kProduct);
}

Task Widened(const Group& group, Batch& batch, Task (*reduce)(const Group&, Batch&)) {
  Wide wide(batch);
  HVD_CO_TRY(co_await wide.Widen());
  HVD_CO_TRY(co_await reduce(group, batch));
  co_return co_await wide.Narrow();
}

}  // namespace hvd::collective
