#include <doctest/doctest.h>

#include <vector>

#include "emu/members.h"

namespace gear::emu {
namespace {

std::vector<int> mirrors(const Members& members) {
  std::vector<int> all;
  for (int member = 0; member < members.size(); ++member) {
    all.push_back(members.mirror(member));
  }
  return all;
}

TEST_CASE("the j-th emulated member is a copy of real member j modulo their number") {
  const Members members(7, {1, 4}, 4);
  CHECK(mirrors(members) == std::vector{0, 0, 1, 0, 1, 1, 0});
  CHECK(members.weight(0) == 4);
  CHECK(members.weight(1) == 3);
  CHECK(members.own() == 4);
  CHECK(members.own_index() == 1);
  CHECK(members.is_real(1));
  CHECK(!members.is_real(0));
}

TEST_CASE("where all are real, each stands for itself") {
  const Members members(3, {0, 1, 2}, 0);
  CHECK(mirrors(members) == std::vector{0, 1, 2});
  for (int index = 0; index < 3; ++index) {
    CHECK(members.weight(index) == 1);
  }
}

}  // namespace
}  // namespace gear::emu
