#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace gear::base {

/// Which of `names` the text is; names.size() where it is none.
size_t find_name(std::span<const std::string_view> names, std::string_view text);

/// Throws the InvalidArgument of a text that is none of `names`: "[area] what 'text': 'a', 'b' and
/// 'c' are allowed", and the hint; `what` begins with the area.
[[noreturn]] void refuse_name(std::string_view what, std::span<const std::string_view> names,
                              std::string_view text, std::string_view hint);

/// The names that users have for the values of an enumeration, which count from 0 on:
///
///     constexpr base::Names<Pad, 3> kPads{"[loader] pad", {"both", "head", "tail"}};
///
///     kPads.parse("head") == Pad::kHead        kPads.name(Pad::kHead) == "head"
template <class Value, size_t N>
class Names {
 public:
  /// `what` begins with the area. The names from number `given` on are told, and never taken.
  constexpr Names(std::string_view what, std::array<std::string_view, N> names, size_t given = N,
                  std::string_view hint = {})
      : what_(what), names_(names), given_(given), hint_(hint) {}

  constexpr std::string_view name(Value value) const { return names_[static_cast<size_t>(value)]; }

  /// Throws InvalidArgument for a text that is no name, which lists those there are.
  Value parse(std::string_view text) const {
    const auto may_be_given = std::span(names_).first(given_);
    const size_t found = find_name(may_be_given, text);
    if (found == given_) {
      refuse_name(what_, may_be_given, text, hint_);
    }
    return static_cast<Value>(found);
  }

 private:
  std::string_view what_;
  std::array<std::string_view, N> names_;
  size_t given_;
  std::string_view hint_;
};

}  // namespace gear::base
