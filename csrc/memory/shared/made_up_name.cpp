#include "memory/shared/made_up_name.h"

#include <exception>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <string_view>

#include "base/errors.h"
#include "base/log.h"
#include "memory/shared/shared_header.h"
#include "memory/shared/shared_object.h"

namespace gear::memory {
namespace {

constexpr std::string_view kBegin = "ranks.";

// False for what is still being made, too: it has no header yet, and its owner lives.
bool is_abandoned(const SharedObject& object) {
  SharedHeader header{};
  return object.is_mine() && object.read_at_start(std::as_writable_bytes(std::span(&header, 1))) &&
         header.magic == kSharedMagic && header.layout_version == kSharedLayoutVersion &&
         liveness(header.owner) == Liveness::kEnded;
}

}  // namespace

std::string made_up_name() {
  remove_abandoned();
  std::random_device random;
  std::string name(kBegin);
  for (int i = 0; i < 16; ++i) {
    name += "0123456789abcdef"[random() % 16];
  }
  return name;
}

void remove_abandoned() noexcept {
  try {
    const std::string begin = shared_object_name(kBegin);
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string object_name = "/" + file.path().filename().string();
      if (!object_name.starts_with(begin)) {
        continue;
      }
      try {
        std::optional<SharedObject> object = SharedObject::open(object_name);
        if (object && is_abandoned(*object) && object->try_unlink()) {
          base::log(base::Level::kInfo, base::cat("[memory] removed /dev/shm", object_name,
                                                  ", which a killed process left behind"));
        }
      } catch (const base::Error&) {  // another user's, who lets nobody open it
      }
    }
  } catch (const std::exception& error) {
    base::log(base::Level::kInfo, base::cat("[memory] /dev/shm was not looked at: ", error.what()));
  }
}

}  // namespace gear::memory
