"""The `gear` command. The entry point is `gear.cli.app:main`."""
