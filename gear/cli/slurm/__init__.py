"""`gear slurm`: job scripts from the templates of `slurm/`, checked against what a cluster has."""
