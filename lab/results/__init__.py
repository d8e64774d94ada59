"""What a run measured: its folder and schema, numbers, statistics, histograms, the knee, operational laws, cycles."""
