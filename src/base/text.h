// Texts that come from outside and go into messages.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

// At most `most` bytes of a UTF-8 text, cut between two characters; "..." stands for what is left out.
inline std::string Shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace hvd
