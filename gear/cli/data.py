"""`gear data inspect PATH`: what a checkpoint holds, without loading it."""

from __future__ import annotations

import json
import sys
from typing import Any

from gear import checkpoint


def run(path: str, as_json: bool) -> int:
    """Print it; returns 2 if the checkpoint is damaged, with one line for each thing wrong."""
    found = checkpoint.inspect(path)
    if as_json:
        columns = [{"name": n, "shape": s, "dtype": d} for n, s, d in found["columns"]]
        print(json.dumps({**found, "columns": columns}, indent=2))
    else:
        _print_tables(path, found)
    for error in found["errors"]:
        line = error if error.startswith("[") else f"[checkpoint] {error}"
        print(f"gear: {line}", file=sys.stderr)
    return 2 if found["errors"] else 0


def _print_tables(path: str, found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    facts = Table(title=str(path), title_justify="left", show_header=False)
    facts.add_row("format", str(found["format"]))
    facts.add_row("saved by", f"{found['ranks']} rank{'s'[: found['ranks'] != 1]}")
    facts.add_row("steps", f"{found['steps']:,}")
    facts.add_row("episodes", f"{found['episodes']:,}")
    facts.add_row("pages", f"{found['pages_used']:,} of {found['pages']:,} in use")
    facts.add_row("steps per page", f"{found['page_steps']:,}")
    facts.add_row("bytes per step", f"{found['step_bytes']:,}")
    facts.add_row("size on disk", f"{found['bytes']:,} bytes")
    facts.add_row("schema hash", found["schema_hash"])
    facts.add_row("checksums", "[red]damaged[/]" if found["errors"] else "all right")

    columns = Table(title="schema", title_justify="left")
    for heading in ("column", "shape", "dtype"):
        columns.add_column(heading)
    for name, shape, dtype in found["columns"]:
        columns.add_row(name, str(tuple(shape)), dtype)
    console = Console()
    console.print(facts)
    console.print(columns)
