#include "transport/one_sided/agreement.h"

#include <array>

#include "base/errors.h"
#include "transport/typed.h"

namespace gear::transport {

std::string failures(Transport& messages, std::string_view kind, std::string_view failed) {
  constexpr std::string_view kArea = "[transport] ";
  std::array<char, 1024> mine{};
  failed.copy(mine.data(), mine.size() - 1, failed.starts_with(kArea) ? kArea.size() : 0);
  const auto all = allgather(messages, mine);
  std::string reasons;
  for (uint32_t r = 0; r < all.size(); ++r) {
    if (all[r][0] != '\0') {
      reasons += base::cat(reasons.empty() ? "" : "; ", "rank ", r, ": ", all[r].data());
    }
  }
  return reasons.empty() ? "" : base::cat("[transport] ", kind, ": ", reasons);
}

void agree(Transport& messages, std::string_view kind, std::string_view failed) {
  if (const std::string text = failures(messages, kind, failed); !text.empty()) {
    throw base::TransportError(text);
  }
}

}  // namespace gear::transport
