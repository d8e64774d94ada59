"""Explanations that somebody might give for the symptoms, each refuted when its claim holds.

They are keyed by claim id, so that scenarios that share a claim share the words. A claim without an entry is reported
by its own statement. `FIXES` names the phases before and after a scenario's fix.
"""

from __future__ import annotations

HYPOTHESES: dict[str, str] = {
    # key-growth
    "p99-follows-keys": "the slowness comes and goes by itself, whatever is in the server",
    "p99-rises": "a few more milliseconds are noise",
    "p99-is-one-search": "bystanders wait for something beside the searches",
    "index-flat": "a server with that many keys is slow, whatever one does with them",
    "restart-restores": "the fault is outside the server: in the network, the machine, the clients",
    "pool": "the clients have too few connections",
    "fresh-connections": "long-lived connections have gone bad",
    "execution-steady": "the server has become slow at a GET",
    "victims-not-slow": "slow GETs, SETs or DELs hold each other up",
    "knee-predicted": "something other than the scans fills the server",
    # key-growth and empty-slowlog
    "index-cures": "the server is too small for so many keys and events",
    # cures
    "index-relieves": "no change of the invalidation would relieve the bystanders",
    "hash-relieves": "a layout of one hash per user is no cure",
    "generation-relieves": "old entries have to be deleted for bystanders to be relieved",
    "keys-relieves-not": "KEYS in place of SCAN is a cure",
    "work-ranked": "all ways to invalidate cost the server about the same",
    "sooner-fresh": "searching is slow, but nobody is served old values for longer because of it",
    "race-stays": "once an event is done, no way leaves an old value behind",
    "generation-leaves": "a version number costs no memory",
    "generation-reads-twice": "a version number costs the readers nothing",
    "hash-leaner": "a hash per user takes as much memory as keys and an index",
    # one-slot
    "tag-first-costs-little": "a search for one user's keys has to visit everybody's",
    "slot-relieves": "as long as events search, bystanders wait",
    "shared-slot-costs": "with the tag first a search costs next to nothing, whoever the user is",
    # shards
    "search-goes-everywhere": "with three servers an event makes a third of the calls, all of them together",
    "knee-moves": "three servers bear more or less than three times the keys",
    "knee-remains": "a cluster has no knee",
    "index-cures-every-shard": "the cluster itself is slow, or one of its nodes has all the work",
    "slow-shard-spreads": "one slow server of three concerns a third of the pages",
    "tags-keep-together": "a user's keys are on any node",
    # empty-slowlog
    "server-drowns": "the server has time to spare",
    "slow-log-empty": "an empty slow log means that no command is to blame",
    "calls-are-short": "single slow commands block the server",
    "calls-per-event": "an event costs the server what it always did",
    "time-goes-to-scan": "reads and writes fill the server's time",
    # eviction-cycle
    "three-phases": "the server is slow at random moments",
    "burst-p99": "eviction is too cheap for anybody to notice",
    "bursts-coincide": "the slow GETs have nothing to do with eviction",
    "responses-drop": "the server keeps up with what is asked of it",
    "evicts-more-than-inserts-need": "eviction only makes room for what is inserted",
    "buffers-displace-keys": "only data takes the memory under the limit",
    "needs-many-clients": "the number of clients does not matter",
    "needs-cpu": "it would come with CPU to spare, too",
    "needs-full-memory": "it would come with memory to spare, too",
    "ttl-cures": "only a larger server helps",
    # giant-index
    "giant-stalls": "an index per user has ended the trouble for good",
    "ordinary-harmless": "the strategy itself is slow, for users of any size",
    "stall-follows-size": "the size of a user's set does not matter",
    "slowlog-names": "the slow log has nothing to say about it",
    "same-work": "chunks are gentle only because they do less work",
    # keys-command
    "keys-fill-slowlog": "all kinds of commands have become slow",
    "exact-cures": "the server is too small for so many deletes",
    "keys-follow-keyspace": "what KEYS costs depends on what it finds, not on what it searches",
    "replica-unharmed": "the network or the clients are slow",
    "scan-stalls-less": "SCAN in place of KEYS changes nothing",
    "scan-works-more": "SCAN in place of KEYS is free",
    "keys-unfelt": "whoever sends KEYS makes everybody wait, whatever the server",
    # same-search
    "keys-harmless": "a server that searches a snapshot cures SCAN as it cures KEYS",
    "waits-follow-keys": "SCAN lets others in, whatever the server",
    "waits-stay": "only giving up the search relieves the bystanders",
    "work-stays": "a server on which nobody waits has no work with a search",
    # pipelined-delete
    "pipeline-pays": "the server needs that long to delete so many keys",
    "gain-grows": "the distance to the server does not matter",
    "variadic-first": "a pipeline is as good as it gets",
    "whole-stalls": "the fewer calls, the better for everybody",
    "transaction-stalls": "one pipeline of everything is as gentle inside a transaction as without",
    "chunks-keep-speed": "chunks cost the speed that was gained",
    # scan-count
    "iteration-time-falls": "COUNT does not change how long an iteration takes",
    "stall-grows": "a large COUNT costs nobody anything",
    "throughput-falls": "SCAN never blocks, so it harms nobody however many run at once",
    "waits-grow": "with a larger COUNT bystanders wait less, because there are fewer calls",
}

FIXES: dict[str, tuple[tuple[str, str], ...]] = {
    "key-growth": (("grow", "index"),),
    "control": (("grow", "index"),),
    "cures": (("scan-load", "index-load"), ("scan-load", "hash-load"), ("scan-load", "generation-load")),
    "empty-slowlog": (("storm", "cure"),),
    "eviction-cycle": (("cycle", "short-ttl"),),
    "giant-index": (("naive", "chunked"),),
    "keys-command": (("grow", "exact"),),
    "one-slot": (("late-load", "slot-load"),),
    "same-search": (("grow", "index"),),
    "shards": (("three-4", "index"),),
    "pipelined-delete": (("variadic-all", "variadic-1000"),),
}
"""Scenario → pairs of phases (or of arms, whose last phases are meant), before and after."""
