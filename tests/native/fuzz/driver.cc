// Runs a fuzz target without libFuzzer: mutates the target's own seeds for a number of seconds of processor time
// (argument 1, default 10; argument 2: the first random seed). An input that crashes is in the file named by argument
// 3, if given: its length (4 bytes), then itself. The file is mapped, so that it outlives a crash without a write per
// input.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <optional>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
std::vector<std::vector<uint8_t>> FuzzSeeds();

namespace {

constexpr uint32_t kMostBytes = 1 << 16;

// Where the current input is kept for whoever looks after a crash.
class Record {
 public:
  explicit Record(const char* path) {
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, kBytes) != 0) std::abort();
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) std::abort();
    at_ = static_cast<uint8_t*>(at);
    close(fd);
  }
  void Keep(const std::vector<uint8_t>& input) {
    const auto n = static_cast<uint32_t>(input.size());
    std::memcpy(at_, &n, sizeof n);
    if (n > 0) std::memcpy(at_ + sizeof n, input.data(), n);
  }

 private:
  static constexpr size_t kBytes = sizeof(uint32_t) + kMostBytes;
  uint8_t* at_;
};

void Mutate(std::mt19937* rng, std::vector<uint8_t>* input, const std::vector<uint8_t>& other) {
  const auto pick = [&](size_t n) { return n == 0 ? 0 : (*rng)() % n; };
  for (size_t n = 1 + pick(4); n > 0; --n) {
    const size_t at = pick(input->size());
    switch (pick(6)) {
      case 0:
        if (!input->empty()) (*input)[at] = static_cast<uint8_t>((*rng)());
        break;
      case 1:
        if (!input->empty()) (*input)[at] ^= static_cast<uint8_t>(1u << pick(8));
        break;
      case 2:
        input->insert(input->begin() + static_cast<std::ptrdiff_t>(at), static_cast<uint8_t>((*rng)()));
        break;
      case 3:
        if (!input->empty()) input->erase(input->begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 4:
        if (!input->empty()) (*input)[at] = static_cast<uint8_t>(pick(2) ? 0xff : 0);
        break;
      default: {  // a piece of another input
        const size_t from = pick(other.size());
        const size_t length = std::min(pick(64), other.size() - from);
        input->insert(input->begin() + static_cast<std::ptrdiff_t>(at),
                      other.begin() + static_cast<std::ptrdiff_t>(from),
                      other.begin() + static_cast<std::ptrdiff_t>(from + length));
      }
    }
  }
  if (input->size() > kMostBytes) input->resize(kMostBytes);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 10;
  std::mt19937 rng(argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : 1);
  const std::vector<std::vector<uint8_t>> seeds = FuzzSeeds();
  for (const auto& seed : seeds) LLVMFuzzerTestOneInput(seed.data(), seed.size());
  std::optional<Record> record;
  if (argc > 3) record.emplace(argv[3]);
  long runs = 0;
  while (static_cast<double>(std::clock()) / CLOCKS_PER_SEC < seconds) {
    for (int i = 0; i < 200; ++i, ++runs) {
      std::vector<uint8_t> input = seeds[rng() % seeds.size()];
      Mutate(&rng, &input, seeds[rng() % seeds.size()]);
      if (record) record->Keep(input);
      LLVMFuzzerTestOneInput(input.data(), input.size());
    }
  }
  std::cout << runs << " inputs, no crash" << std::endl;
  return 0;
}
