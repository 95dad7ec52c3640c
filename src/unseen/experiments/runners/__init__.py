"""Where the jobs of a grid run: processes of this machine, a Ray cluster, or Slurm."""
