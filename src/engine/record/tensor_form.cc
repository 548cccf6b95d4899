#include "engine/record/tensor_form.h"

namespace hvd::engine {

void TensorForm::Render(const TraceEvent& e, TraceText* out) {
  switch (e.kind) {
    case TraceEvent::Kind::kSubmitted:
      Begin(e.name, std::string("NEGOTIATE_") + e.operation, e.at_us, out);
      Open('X', e.name, 0, e.at_us, out);
      AppendAll(&out->events, ",\"name\":\"", rank_, "\",\"dur\":0}\n");
      return;
    case TraceEvent::Kind::kAgreed:
      for (const auto& r : e.tensors) End(RowOf(*r), "", e.at_us, out);
      return;
    case TraceEvent::Kind::kBegan:
      for (const auto& r : e.tensors) {
        const std::string row = RowOf(*r);
        Begin(row, e.operation, e.at_us, out);
        Begin(row, e.name, e.at_us, out);
      }
      return;
    case TraceEvent::Kind::kEnded:
      for (const auto& r : e.tensors) {
        const std::string row = RowOf(*r);
        End(row, "", e.at_us, out);
        End(row, std::string("{\"dtype\":\"") + NameOf(r->dtype) + "\",\"shape\":\"" + ShapeJson(r->shape) + "\"}",
            e.at_us, out);
      }
      return;
    case TraceEvent::Kind::kFailed:
      return;
    case TraceEvent::Kind::kMoment:
      Open('i', "", 0, e.at_us, out);
      AppendAll(&out->events, ",\"name\":");
      AppendQuoted(e.name, &out->events);
      AppendAll(&out->events, ",\"s\":\"g\"}\n");
  }
}

void TensorForm::Render(const DeviceRows::Shown& shown, TraceText* out) {
  const auto begin_us = static_cast<int64_t>(shown.span.begin_s * 1e6),
             end_us = static_cast<int64_t>(shown.span.end_s * 1e6);
  if (!shown.row_name.empty()) {
    const int pid = PidOf(shown.tensor, out);
    AppendAll(&out->names, ",{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":", pid, ",\"tid\":", shown.row,
              ",\"args\":{\"name\":");
    AppendQuoted(shown.row_name, &out->names);
    AppendAll(&out->names, "}}\n");
  }
  Open('X', shown.tensor, shown.row, begin_us, out);
  AppendAll(&out->events, ",\"name\":");
  AppendQuoted(shown.span.name, &out->events);
  AppendAll(&out->events, ",\"dur\":", end_us - begin_us, "}\n");
}

void TensorForm::Lack(int, uint64_t n, int64_t now_us, TraceText* out) {
  Open('i', "", 0, now_us, out);
  AppendAll(&out->events, ",\"name\":\"", n, " events dropped\",\"s\":\"g\"}\n");
}

void TensorForm::Open(char phase, const std::string& tensor, int row, int64_t at_us, TraceText* out) {
  const int pid = PidOf(tensor, out);
  AppendAll(&out->events, ",{\"ph\":\"", phase, "\",\"pid\":", pid, ",\"tid\":", row, ",\"ts\":", at_us - start_us_);
  ++out->n_events;
}

void TensorForm::Begin(const std::string& tensor, std::string_view what, int64_t at_us, TraceText* out) {
  Open('B', tensor, 0, at_us, out);
  AppendAll(&out->events, ",\"name\":");
  AppendQuoted(what, &out->events);
  AppendAll(&out->events, "}\n");
}

void TensorForm::End(const std::string& tensor, const std::string& args, int64_t at_us, TraceText* out) {
  Open('E', tensor, 0, at_us, out);
  if (!args.empty()) AppendAll(&out->events, ",\"args\":", args);
  AppendAll(&out->events, "}\n");
}

int TensorForm::PidOf(const std::string& tensor, TraceText* out) {
  if (tensor.empty()) return 0;
  auto [it, is_new] = pids_.emplace(tensor, static_cast<int>(pids_.size()) + 1);
  if (is_new) {
    AppendAll(&out->names, ",{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":", it->second, ",\"args\":{\"name\":");
    AppendQuoted(tensor, &out->names);
    AppendAll(&out->names, "}}\n,{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":", it->second,
              ",\"args\":{\"sort_index\":", it->second, "}}\n");
  }
  return it->second;
}

}  // namespace hvd::engine
