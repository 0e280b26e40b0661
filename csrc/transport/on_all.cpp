#include "transport/on_all.h"

#include <algorithm>
#include <array>
#include <exception>
#include <type_traits>

#include "base/errors.h"
#include "transport/typed.h"

namespace gear::transport {
namespace {

// What a step threw, as it travels.
struct Thrown {
  enum class Kind : int32_t {
    kNothing,
    kInvalidArgument,
    kOutOfMemory,
    kCudaError,
    kTransportError,
    kCorruptData,
    kIoError,
    kOther,
  };

  Kind kind = Kind::kNothing;
  int32_t code = 0;                // of an IoError
  std::array<char, 1016> words{};  // what is longer is cut

  Thrown() = default;
  Thrown(Kind its_kind, std::string_view its_words, int its_code = 0)
      : kind(its_kind), code(its_code) {
    its_words.copy(words.data(), words.size() - 1);
  }
};

Thrown thrown_by(const std::function<void()>& step, std::exception_ptr& error) {
  using Kind = Thrown::Kind;
  try {
    try {
      step();
      return {};
    } catch (...) {
      error = std::current_exception();
      throw;
    }
  } catch (const base::InvalidArgument& one) {
    return {Kind::kInvalidArgument, one.what()};
  } catch (const base::OutOfMemory& one) {
    return {Kind::kOutOfMemory, one.what()};
  } catch (const base::CudaError& one) {
    return {Kind::kCudaError, one.what()};
  } catch (const base::TransportError& one) {
    return {Kind::kTransportError, one.what()};
  } catch (const base::CorruptData& one) {
    return {Kind::kCorruptData, one.what()};
  } catch (const base::IoError& one) {
    return {Kind::kIoError, one.what(), one.code()};
  } catch (const std::bad_alloc&) {
    return {Kind::kOutOfMemory, "no memory left"};
  } catch (const std::runtime_error& one) {
    return {Kind::kOther, one.what()};
  } catch (const std::logic_error& one) {
    return {Kind::kOther, one.what()};
  }
}

[[noreturn]] void rethrow(uint32_t rank, const Thrown& thrown) {
  using Kind = Thrown::Kind;
  const std::string text = base::cat("on rank ", rank, ": ", thrown.words.data());
  switch (thrown.kind) {
    case Kind::kInvalidArgument:
      throw base::InvalidArgument(text);
    case Kind::kOutOfMemory:
      throw base::OutOfMemory(text);
    case Kind::kCudaError:
      throw base::CudaError(text);
    case Kind::kCorruptData:
      throw base::CorruptData(text);
    case Kind::kIoError:
      throw base::IoError(text, thrown.code);
    default:
      throw base::TransportError(text);
  }
}

}  // namespace

void on_all(Transport& control, const std::function<void()>& step) {
  std::exception_ptr error;
  const Thrown own = thrown_by(step, error);
  std::vector<Thrown> all;
  try {
    all = allgather(control, own);
  } catch (...) {
    if (error) {  // it came first
      std::rethrow_exception(error);
    }
    throw;
  }
  if (error) {
    std::rethrow_exception(error);
  }
  const auto first = std::ranges::find_if(
      all, [](const Thrown& one) { return one.kind != Thrown::Kind::kNothing; });
  if (first != all.end()) {
    rethrow(static_cast<uint32_t>(first - all.begin()), *first);
  }
}

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
