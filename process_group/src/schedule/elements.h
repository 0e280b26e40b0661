#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gear::process_group {

/// What a reduction computes with. Whatever else a tensor holds is moved as bytes.
enum class Element : uint8_t { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBf16, kF32, kF64 };

enum class Reduction : uint8_t { kSum, kProduct, kMin, kMax, kAnd, kOr, kXor };

/// How an array of float32 travels: as it is, or rounded to a type of half the size.
enum class Compression : uint8_t { kNone, kBf16, kF16 };

uint64_t element_bytes(Element element);
std::string_view reduction_name(Reduction reduction);

/// Bitwise reductions take integers and bool; everything else takes every element.
bool can_reduce(Element element, Reduction reduction);

/// into[i] = left[i] op right[i]; `into` may be either of them. float16 and bfloat16 are added as
/// float32 and rounded to nearest even; a NaN stays one in minimum and maximum; of bool, the sum
/// and the maximum are "or", the product and the minimum "and".
void combine(Element element, Reduction reduction, std::byte* into, const std::byte* left,
             const std::byte* right, uint64_t count);

/// values[i] /= divisor; integers are rounded towards zero. Not for bool.
void divide(Element element, std::byte* values, uint64_t count, int64_t divisor);

/// Rounds float32 to the type of the compression, to nearest even; too large becomes infinity.
void narrow(Compression compression, const std::byte* from, std::byte* to, uint64_t count);
void widen(Compression compression, const std::byte* from, std::byte* to, uint64_t count);
/// Each value becomes what the others see of it.
void round_to(Compression compression, std::byte* values, uint64_t count);

}  // namespace gear::process_group
