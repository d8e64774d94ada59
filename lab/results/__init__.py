"""A run's measurements: its folder and schema, numbers, statistics, histograms, knee, operational laws, cycles."""
