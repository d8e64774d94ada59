"""`lab explain RUN`: the story of a run in plain sentences, made from its folder and nothing else."""
