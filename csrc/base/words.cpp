#include "base/words.h"

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace gear::base {

size_t find_word(std::span<const std::string_view> words, std::string_view text) {
  return static_cast<size_t>(std::ranges::find(words, text) - words.begin());
}

void refuse_word(std::string_view what, std::span<const std::string_view> words,
                 std::string_view text, std::string_view hint) {
  std::string allowed;
  for (size_t i = 0; i < words.size(); ++i) {
    const char* before = i == 0 ? "'" : i + 1 < words.size() ? ", '" : " and '";
    allowed += cat(before, words[i], "'");
  }
  throw InvalidArgument(cat(what, " '", text, "': ", allowed, " are allowed", hint));
}

}  // namespace gear::base
