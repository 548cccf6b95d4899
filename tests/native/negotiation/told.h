// An action in words, for the traces of tests: ticket, what about, and what befell it.
#pragma once

#include <string>

#include "negotiation/values/actions.h"

namespace hvd::test {

inline std::string Told(const negotiation::ExecuteBatch& a) {
  std::string text = "0  ";
  for (const negotiation::Entry& e : a.entries)
    text += " " + e.request->name + "/" + std::to_string((e.ticket - 1) / 8);
  return text;
}
inline std::string Told(const negotiation::Exchanged& a) {
  return std::to_string(a.entry.ticket) + " " + a.entry.request->name + " with payloads ";
}
inline std::string Told(const negotiation::EntryFailed& a) {
  return std::to_string(a.ticket) + " " + a.name + " " + a.why.message();
}
inline std::string Told(const negotiation::SetAdded& a) { return std::to_string(a.ticket) + "  "; }
inline std::string Told(const negotiation::SetRemoved& a) { return std::to_string(a.ticket) + "  "; }
inline std::string Told(const negotiation::SetChangeFailed& a) {
  return std::to_string(a.ticket) + "  " + a.why.message();
}
inline std::string Told(const negotiation::AllJoined& a) { return std::to_string(a.ticket) + "  "; }
inline std::string Told(const negotiation::ParametersChanged& a) {
  return "0 parameters " + std::to_string(a.parameters.fusion_threshold_bytes) + " ";
}
inline std::string Told(const negotiation::RankLeft& a) { return "0 " + a.exception + " "; }
inline std::string Told(const negotiation::Aborted& a) { return "0  " + a.why.message(); }
inline std::string Told(const negotiation::Stalled&) { return "0 stalled "; }
inline std::string Told(const negotiation::TraceOrder& a) { return std::to_string(a.number) + " trace "; }
inline std::string Told(const negotiation::TracePiece& a) { return std::to_string(a.rank) + " " + a.text + " "; }
inline std::string Told(const negotiation::ClockQuestion&) { return "0 clock "; }
inline std::string Told(const negotiation::ClockAnswer& a) { return std::to_string(a.rank) + " clock "; }
inline std::string Told(const negotiation::LogLine& a) { return "0 " + a.text + " "; }

}  // namespace hvd::test
