"""Claims: statements about a run, each with a bound written down before it, judged from the run folder alone.

Each claim is a small function `Run -> Result`. Bounds are ratios and ranks within one run, never absolute
times. Every claim must be able to fail, and fails where the cause is absent: a claim that "X changes
nothing" also requires that there is a rise in p99 for X to change.
"""

from lab.claims.base import Claim, Outcome, Result, judge

__all__ = ["Claim", "Outcome", "Result", "judge"]
