"""Stands in for Horovod where that is not built: what gear.distributed calls, over files."""
