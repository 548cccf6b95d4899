// Whatever is thrown inside ends at the border, as a code and a text; also when there is no memory for the text.
#include "border/border.h"

#include <stdexcept>
#include <string>

#include "api/guard.h"
#include "native/harness/harness.h"
#include "native/harness/scarce_memory.h"

namespace hvd::test::border_border {
namespace {

struct Told {
  hvd_status code = HVD_OK;
  std::string text = "";
};

template <class Body>
Told After(Body body) {
  Told told;
  border::Guarded(body, [&](hvd_status code, const char* text) { told = {code, text}; });
  return told;
}

TEST(border_turns_whatever_is_thrown_into_a_code_and_a_text) {
  EXPECT_EQ(After([] {}).code, HVD_OK);
  const Told memory = After([] { throw std::bad_alloc(); });
  EXPECT(memory.code == HVD_RESOURCE && memory.text == border::kNoMemory);
  const Told bug = After([] { throw std::runtime_error("a bug"); });
  EXPECT(bug.code == HVD_INTERNAL && bug.text == "unexpected: a bug");
  const Told foreign = After([] { throw 7; });  // what no std::exception is
  EXPECT(foreign.code == HVD_INTERNAL && foreign.text.find("another C++ library") != std::string::npos);
  EXPECT(After([] { throw std::runtime_error(std::string(1000, 'x')); }).text.size() < 200);
  EXPECT(!border::Succeeds([] { throw 7; }) && border::Succeeds([] {}));
}

TEST(border_of_the_c_interface_needs_no_memory_to_say_that_there_is_none) {
  bool told = false;  // the failure itself, whose text there was no memory for
  bool met = true;
  for (int64_t granted = 0; met; ++granted) {
    hvd_status code = HVD_OK;
    {
      const ScarceMemory scarce(granted, /*lasting=*/true);
      code = api::Guard([]() -> Status { return Status(Code::kMismatch, std::string(1000, 'x')); });
      met = scarce.met();
    }
    EXPECT(code == HVD_MISMATCH || (met && code == HVD_RESOURCE));
    EXPECT_EQ(std::string(hvd_last_error()), met ? "out of memory." : std::string(1000, 'x'));
    told |= met && code == HVD_MISMATCH;
  }
  EXPECT(told);
  EXPECT_EQ(api::Guard([]() -> Status { throw 7; }), HVD_INTERNAL);
}

TEST(border_holds_for_every_failure_of_the_c_interface_without_memory) {
  for (int64_t granted = 0; granted < 6; ++granted) {
    const ScarceMemory scarce(granted, /*lasting=*/true);
    hvd_handle handle = 0;
    const hvd_status polled = hvd_poll(7), refused = hvd_submit(nullptr, 0, 0, &handle);
    EXPECT(polled == HVD_RESOURCE || polled == HVD_NOT_INITIALIZED);
    EXPECT(refused == HVD_RESOURCE || refused == HVD_NOT_INITIALIZED);
    EXPECT(hvd_initialized() == 0 && hvd_mpi_left() != nullptr);
    hvd_shared_free(&handle);
  }
}

}  // namespace
}  // namespace hvd::test::border_border
