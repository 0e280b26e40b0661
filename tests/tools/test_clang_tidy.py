"""What `.clang-tidy` refuses, and that it lets the handwriting of csrc/ through."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from docs.documents import ROOT

CLANG_TIDY = Path(sys.executable).parent / "clang-tidy"
GOOD = """
#include <string>
#include <vector>
namespace gear::base {
constexpr int kMost = 3;
class Thing {
 public:
  explicit Thing(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};
int num_things(const std::vector<Thing>& things) {
  static const int most = kMost;
  return things.size() > 3 ? most : static_cast<int>(things.size());
}
}  // namespace gear::base
"""


def tidy(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "thing.cpp"
    file.write_text(source)
    return subprocess.run(
        [CLANG_TIDY, f"--config-file={ROOT / '.clang-tidy'}", "--quiet", file, "--", "-std=c++20"],
        capture_output=True,
        text=True,
        check=False,
    )


pytestmark = pytest.mark.skipif(not CLANG_TIDY.exists(), reason="this machine has no clang-tidy")


def test_clang_tidy_passes_the_handwriting_of_csrc(tmp_path: Path) -> None:
    done = tidy(GOOD, tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("num_things", "NumThings", "readability-identifier-naming"),
        ("name_", "name", "readability-identifier-naming"),
        ("kMost", "most_of_all", "readability-identifier-naming"),
        ("const std::vector<Thing>& things", "std::vector<Thing> things", "value-param"),
        ("return things", "if (kMost > 2) return 0;\n  return things", "braces-around"),
    ],
)
def test_clang_tidy_refuses(old: str, new: str, check: str, tmp_path: Path) -> None:
    source = GOOD.replace(old, new)
    if old == "name_":  # the member, and not the function of that name
        source = source.replace("name() const", "text() const")
    done = tidy(source, tmp_path)
    assert done.returncode != 0
    assert check in done.stdout, done.stdout + done.stderr
