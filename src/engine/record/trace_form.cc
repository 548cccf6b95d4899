#include "engine/record/trace_form.h"

#include <cstdio>

namespace hvd::engine {

std::string ShapeJson(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (const int64_t extent : shape) AppendAll(&s, s.size() > 1 ? "," : "", extent);
  return s + "]";
}

void AppendQuoted(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      *out += code;
    } else {
      *out += c;
    }
  }
  *out += '"';
}

}  // namespace hvd::engine
