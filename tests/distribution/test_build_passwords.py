"""Names and passwords in a site's URLs stay out of what a build prints, logs and records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distribution.recipe import small_site, toy_recipe
from distribution.recipe_part import run_part

HOST = "127.0.0.1:9/simple"
SECRET = f"http://user:secret@{HOST}"


def test_a_dry_run_shows_no_password(tmp_path: Path) -> None:
    urls = dict.fromkeys(("proxy", "pip_index", "torch_index", "env__HUB"), SECRET)
    site = small_site(tmp_path / "site.conf", **urls, torch="2.13.0")
    said = toy_recipe(site, tmp_path / "prefix").succeed("--dry-run")
    assert f"--index-url 'http://***@{HOST}'" in said
    assert f"ENV.HUB=http://***@{HOST}" in said
    assert "secret" not in said
    assert "--proxy" not in said  # any list of processes would show it


@pytest.mark.slow
def test_log_and_error_show_no_password(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site.conf", pip_index=SECRET, proxy=SECRET)
    env = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "1"}
    env |= dict.fromkeys(("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"), "")
    recipe = toy_recipe(site, tmp_path / "prefix", env)
    done = recipe.run()
    assert "[venv] " in done.sentence()
    assert "the network does not answer" in done.sentence()
    assert "secret" not in done.output + done.errors
    (log,) = recipe.prefix.glob("gear/.builds/*/share/gear/logs/02-venv.log")
    assert f"--index-url 'http://***@{HOST}'" in log.read_text()
    assert "secret" not in log.read_text()


def test_the_manifest_holds_no_password(tmp_path: Path) -> None:
    urls = {"torch_index": SECRET, "env.PATHS": f"/a@b {SECRET} https://host/@x"}
    done = run_part("inputs.sh", "site_values", tmp_path, site=urls)
    assert f"torch_index = http://***@{HOST}\n" in done.stdout, done.stderr
    assert f"env.PATHS = /a@b http://***@{HOST} https://host/@x\n" in done.stdout
    assert "secret" not in done.stdout
