"""Puts faults into a copy of a working tree, one after the other: do the tests find them?

    python tests/mutations/run.py                     lists the mutations
    python tests/mutations/run.py --check             is the place of each one still there?
    python tests/mutations/run.py NAME... | --all     tries them, one line each

A mutation is a file of the folders beside this one: what becomes of which text, and the tests that
must find it. Only a test counts that passes without the fault, in the same copy, and then fails by
itself: what does not build, or does not get as far as the test, has found nothing.

    --tree DIR      tries them in the sources of DIR, a clone of another commit
    --copy FOLDER   where the copy is made and kept (default: below build/mutations)

Exit code: 0, or 1 if a place has moved or a mutation was not caught.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests, as pytest has it

from mutations.copied_tree import COMPILED, BuildFailed, CopiedTree, compiled
from mutations.mutation import Mutation, read_mutations
from mutations.outcomes import Outcome
from mutations.still_there import complaints

REPOSITORY = Path(__file__).parents[2]


def verdict(
    mutation: Mutation, before: Mapping[str, Outcome], with_fault: Mapping[str, Outcome]
) -> str:
    """ "caught by A, B", or why it was not; what each test did without the fault, and with it."""
    named = [*mutation.tests, *mutation.native]
    judges = [test for test in named if before[test] is Outcome.PASSED]
    by = [test for test in judges if with_fault[test] is Outcome.FAILED]
    if by:
        return f"caught by {', '.join(by)}"
    said = [
        f"{test} {with_fault[test].value}"
        if test in judges
        else f"{test} {before[test].value} without the fault, too"
        for test in named
    ]
    return f"NOT CAUGHT: {'; '.join(said)}"


def try_all(mutations: Mapping[str, Mutation], tree: CopiedTree) -> bool:
    """Prints a line for each; whether all were caught."""
    chosen = list(mutations.values())
    tree.prepare_for(chosen)
    before = tree.run(
        list(dict.fromkeys(test for one in chosen for test in one.tests)),
        list(dict.fromkeys(case for one in chosen for case in one.native)),
    )
    all_caught = True
    for name in sorted(mutations, key=lambda name: by_what_is_compiled(mutations[name])):
        mutation = mutations[name]
        began = time.monotonic()
        try:
            with tree.holding(mutation):
                said = verdict(mutation, before, tree.run(mutation.tests, mutation.native))
        except BuildFailed as error:
            said = f"NOT CAUGHT: it cannot be built: {error}"
        print(f"{name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
        all_caught &= said.startswith("caught")
    return all_caught


def by_what_is_compiled(mutation: Mutation) -> tuple[int, str]:
    """A sort key: neighbours have the least to compile between them."""
    return COMPILED.index(compiled(mutation.file)), mutation.file


def place_of_copy(source: Path) -> Path:
    own = source == REPOSITORY
    name = "tree" if own else f"tree-{zlib.crc32(str(source).encode()):08x}"
    return REPOSITORY / "build" / "mutations" / name


def read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="as in core/a_priority_counts_twice"
    )
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--check", action="store_true", help="look at their places and tests only")
    parser.add_argument(
        "--tree", type=Path, default=REPOSITORY, help="whose sources; default: these"
    )
    parser.add_argument("--copy", type=Path, help="folder of the copy that is changed")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    arguments = read_arguments(words)
    source = arguments.tree.resolve()
    known = read_mutations()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        print(f"mutations: no such mutation: {', '.join(unknown)}", file=sys.stderr)
        return 2
    if not (arguments.names or arguments.all or arguments.check):
        for name, mutation in known.items():
            print(f"{name}: {mutation.fault}")
        return 0
    chosen = {name: known[name] for name in arguments.names or known}
    moved = complaints(chosen, source)
    for sentences in moved.values():
        print("\n".join(sentences))
    if arguments.check:
        return 1 if moved else 0
    fit = {name: mutation for name, mutation in chosen.items() if name not in moved}
    copy = (arguments.copy or place_of_copy(source)).resolve()
    copy.mkdir(parents=True, exist_ok=True)
    print(f"mutations: {len(fit)} in {copy}, a copy of {source}", flush=True)
    try:
        all_caught = try_all(fit, CopiedTree(source, copy))
    except BuildFailed as error:
        print(f"mutations: the copy cannot be built without a fault: {error}", file=sys.stderr)
        return 1
    return 0 if all_caught and not moved else 1


if __name__ == "__main__":
    sys.exit(main())
