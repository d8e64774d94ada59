"""The experiment: scenarios, stacks, running, recording, claims, report, command line."""
