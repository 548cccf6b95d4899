#include "frameworks/described_call.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "border/border.h"

namespace hvd::frameworks {

// The words of a text, one after the other.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) { Skip(); }

  bool over() const { return rest_.empty(); }
  size_t left_bytes() const { return rest_.size(); }

  bool Next(std::string* word) {
    *word = rest_.substr(0, rest_.find_first_of(kSpace));
    rest_.remove_prefix(word->size());
    Skip();
    return !word->empty() && word->find('\0') == std::string::npos;
  }
  template <class Number>
  bool Next(Number* number) {
    const char *start = rest_.data(), *end = start + rest_.size();
    const auto [stop, problem] = std::from_chars(start, end, *number);
    if (problem != std::errc() || (stop != end && std::strchr(kSpace, *stop) == nullptr)) return false;
    rest_.remove_prefix(static_cast<size_t>(stop - start));
    Skip();
    return true;
  }

 private:
  static constexpr const char* kSpace = " \n";

  void Skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpace), rest_.size())); }

  std::string_view rest_;
};

namespace {

constexpr double kSliceS = 1.0;  // of a wait, which has no end of its own: the engine's deadlines apply

}  // namespace

bool DescribedCall::Parse(std::string_view text) {
  Words words(text);
  while (!words.over()) {
    hvd_op op = {};
    size_t n = 0;
    if (!words.Next(&op.type) || !words.Next(&op.process_set) || !words.Next(&op.reduce_op) ||
        !words.Next(&op.root_rank) || !words.Next(&op.prescale) || !words.Next(&op.postscale) || !words.Next(&n) ||
        n == 0 || n > words.left_bytes()) {
      return false;
    }
    submissions_.push_back(n);
    for (size_t i = 0; i < n; ++i) {
      ops_.push_back(op);
      if (!ParseTensor(&words)) return false;
    }
  }
  // Not before: what has grown may have moved.
  const int64_t* shape = extents_.data();
  for (size_t i = 0; i < ops_.size(); ++i) {
    ops_[i].name = names_[i].c_str();
    ops_[i].shape = shape;
    shape += ops_[i].ndim;
  }
  return !ops_.empty();
}

bool DescribedCall::ParseTensor(Words* words) {
  hvd_op& op = ops_.back();
  if (!words->Next(&names_.emplace_back()) || !words->Next(&op.dtype) || !words->Next(&result_bytes_.emplace_back()) ||
      !words->Next(&op.ndim) || op.ndim < 0) {
    return false;
  }
  for (int32_t d = 0; d < op.ndim; ++d) {
    if (!words->Next(&extents_.emplace_back())) return false;
  }
  return true;
}

hvd_status DescribedCall::Run(const void* const* in, void* const* out, const Where& where, std::string* why) {
  for (size_t i = 0; i < ops_.size(); ++i) {
    ops_[i].place = where.place;
    ops_[i].stream = where.stream;
    ops_[i].input = in[i];
    ops_[i].output = out[i];
    ops_[i].output_bytes = WorksInPlace(ops_[i]) ? 0 : result_bytes_[i];
  }
  hvd_status failure = HVD_OK;
  const auto note = [&](hvd_status status) {
    if (failure != HVD_OK || status == HVD_OK) return;
    failure = status;
    if (why->empty()) border::Guarded([&] { *why = hvd_last_error(); }, [&](hvd_status, const char* no) { *why = no; });
  };
  std::vector<hvd_handle> handles(submissions_.size(), 0);
  for (size_t s = 0, first = 0; s < submissions_.size(); first += submissions_[s++])
    note(Start(first, submissions_[s], &handles[s]));
  // After a failure too: the engine uses the tensors until their submissions are done. So nothing is thrown here.
  for (size_t s = 0, first = 0; s < submissions_.size(); first += submissions_[s++]) {
    if (handles[s] == 0) continue;
    hvd_status status = HVD_IN_PROGRESS;
    while (status == HVD_IN_PROGRESS) status = hvd_wait(handles[s], kSliceS);
    if (status == HVD_OK && !WorksInPlace(ops_[first])) {
      border::Guarded([&] { status = CheckResults(handles[s], first, submissions_[s], why); },
                      [&](hvd_status code, const char* text) {
                        status = code;
                        *why = text;
                      });
    }
    note(status);
    // Orders the stream that the tensors came with, as hvd_order would: a second wait there would only cost time.
    note(hvd_release(handles[s]));
  }
  return failure;
}

// HVD_OK: done, or under way and then with a handle.
hvd_status DescribedCall::Start(size_t first, size_t n, hvd_handle* handle) const {
  const auto count = static_cast<int32_t>(n);
  if (submissions_.size() > 1 || !WorksInPlace(ops_[first]))
    return hvd_submit(&ops_[first], count, HVD_SUBMIT_WILL_WAIT, handle);
  const hvd_status status = hvd_run(&ops_[first], count, kSliceS, handle);  // knows a shorter way
  return status == HVD_IN_PROGRESS ? HVD_OK : status;
}

// Their size was promised when the function was compiled; one of another size the core has in memory of its own.
hvd_status DescribedCall::CheckResults(hvd_handle handle, size_t first, size_t n, std::string* why) const {
  for (size_t i = 0; i < n; ++i) {
    hvd_result result = {};
    if (const hvd_status status = hvd_describe_result(handle, static_cast<int32_t>(i), &result); status != HVD_OK)
      return status;
    const int64_t promised = result_bytes_[first + i];
    if (result.bytes == promised) continue;
    *why = "'" + names_[first + i] + "' in a function compiled with XLA: the ranks' first dimensions differ (" +
           std::to_string(result.bytes) + " bytes in all, " + std::to_string(promised) +
           " expected from this rank's alone). All ranks must pass the same number of rows there.";
    return HVD_INVALID_ARGUMENT;
  }
  return HVD_OK;
}

}  // namespace hvd::frameworks
