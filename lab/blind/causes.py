"""The causes a blind session may have: what each is, what shows it, what looks like it, and hints. Data only."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from lab.blind import evidence
from lab.blind.readings import Finding, Readings
from lab.errors import UsageError


@dataclass(frozen=True)
class Cause:
    """One possible answer.

    `line` says in a few words what it would be (everybody may read it), `mechanism` why it does what it does. `alike`
    maps another cause's id to the experiment that tells the two apart. `hints` go from general to specific; only the
    last may name the cause. `words` are names of the cause that nothing a participant reads before may hold.
    """

    id: str
    title: str
    line: str
    mechanism: str
    evidence: Callable[[Readings], Finding]
    alike: dict[str, str]
    hints: tuple[str, ...]
    words: tuple[str, ...]


CAUSES = {
    cause.id: cause
    for cause in (
        Cause(
            "scan-storm",
            "A storm of SCANs",
            "somebody searches the whole keyspace with SCAN, on many connections at once",
            "Each SCAN call is short, so the slow log stays empty; but there are as many waiting as there are "
            "searches, and every other command waits for a whole round of them. MATCH filters after a key was visited: "
            "a search that finds nothing costs as much as one that finds everything.",
            evidence.scan_storm,
            {
                "keys-command": "SLOWLOG GET: KEYS is long and stands there, SCAN is short and does not.",
                "giant-index": "INFO commandstats: one command holds the main thread all the time; a giant set "
                "holds it for a moment at each change.",
                "noisy-neighbour": "CPU of the store's own thread: it works all the time. Beside a noisy neighbour it "
                "works little, and waits for a core.",
                "exhausted-pool": "A GET past the storefront is as slow as one through it.",
            },
            (
                "Ask the store past the storefront. Is it slow for everybody, or only for the storefront?",
                "Its slow log may well hold nothing of what fills its time. Compare how often each command is called "
                "with how long all its calls take together.",
                "One command takes nearly all of the server's time in calls of about a millisecond each: SCAN. "
                "Find out from CLIENT LIST how many connections send it.",
            ),
            ("scan-storm", "scan storm", "scanstorm", "storm"),
        ),
        Cause(
            "keys-command",
            "The KEYS command",
            "somebody finds keys by a pattern with KEYS",
            "KEYS walks over every key in one piece, and the server serves nobody meanwhile. Whoever comes in that "
            "time waits for the rest of it.",
            evidence.keys_command,
            {
                "scan-storm": "SLOWLOG GET names KEYS; SCAN's calls are too short for it.",
                "giant-index": "SLOWLOG GET: the command's own words. KEYS grows with the keyspace, a giant set with "
                "its members.",
                "eviction-cycle": "INFO stats: evicted_keys stands still, and the stalls come evenly.",
                "noisy-neighbour": "The main thread's share of CPU, and the slow log: one command alone is long.",
            },
            (
                "Look at when GETs are slow: a few very slow ones between fast ones, or all of them a little?",
                "While somebody waits long, the server executes something long. It keeps a list of such things.",
                "SLOWLOG GET: every entry is the same command, and it walks over all keys. KEYS blocks.",
            ),
            ("keys-command", "keys command", "keyscommand"),
        ),
        Cause(
            "giant-index",
            "A giant index set",
            "one index set has grown huge, and is read and deleted in one piece",
            "Every change reads the whole set with one SMEMBERS and deletes all that it names with one command. Both "
            "take as long as the set is large, and nobody else is served meanwhile.",
            evidence.giant_index,
            {
                "keys-command": "SLOWLOG GET: SMEMBERS and UNLINK with tens of thousands of arguments, no KEYS.",
                "scan-storm": "INFO commandstats: few calls, each long. A storm is many calls, each short.",
                "unpipelined-deletes": "Calls of UNLINK for each change: one, not one for each key.",
                "eviction-cycle": "INFO stats: evicted_keys stands still.",
            },
            (
                "Put the moments of slow GETs beside what the store does every few seconds.",
                "The slow log names more than one command, and all of them touch the same key, or come together. "
                "How many members does it have? (SCARD asks without reading.)",
                "One set has tens of thousands of members: it is read at once with SMEMBERS, and everything it "
                "names is deleted by a single UNLINK.",
            ),
            ("giant-index", "giant index", "giantindex", "giant"),
        ),
        Cause(
            "eviction-cycle",
            "An eviction cycle",
            "memory is at its limit, and bursts of clients force evictions in bursts",
            "At maxmemory the server frees before it executes. Buffers of clients that ask for much at once count "
            "against the limit, so a burst of answers evicts tens of thousands of entries, up to half a millisecond of "
            "that with each command; the rest of the time memory climbs back.",
            evidence.eviction_cycle,
            {
                "giant-index": "INFO stats: evicted_keys climbs in steps, with each stall.",
                "keys-command": "SLOWLOG GET holds no long command that explains the stalls; used_memory is at "
                "maxmemory.",
                "scan-storm": "The stalls come in bursts seconds apart, with calm in between.",
                "noisy-neighbour": "used_memory against maxmemory, and evicted_keys.",
            },
            (
                "It is not slow all the time. How far apart are the bad moments, and what is different in between?",
                "Compare two readings of INFO stats and INFO memory, a second apart, several times in a row. What "
                "falls when it gets slow?",
                "used_memory reaches maxmemory, evicted_keys jumps by tens of thousands in the bad moments: eviction.",
            ),
            ("eviction-cycle", "eviction cycle", "evictioncycle", "eviction storm"),
        ),
        Cause(
            "unpipelined-deletes",
            "Unpipelined deletes",
            "a program deletes tens of thousands of keys, one round trip each",
            "Each key costs a round trip, so a change takes as many as it has keys. The store and its bystanders are "
            "well; the changes queue up behind each other, and users see what was true long ago.",
            evidence.unpipelined_deletes,
            {
                "giant-index": "Bystanders' GETs are fast: nothing holds the server for long. UNLINK is called once "
                "for each key.",
                "nothing": "LLEN and LINDEX 0 of the queue of changes: it grows.",
                "slow-network": "A PING through the storefront's link is as fast as past it, pages are fast.",
                "exhausted-pool": "Pages are fast.",
            },
            (
                "Not every complaint is about waiting. Which of the three figures is bad, and which are not?",
                "Changes wait for each other. What does the program that carries them out send, how often, and how "
                "long does it wait in between? MONITOR or tcpdump show it.",
                "The program sends an UNLINK for one key, waits for the answer, and sends the next, tens of thousands "
                "of times for each change: nothing is pipelined.",
            ),
            ("unpipelined-deletes", "unpipelined", "sequential delete", "one by one"),
        ),
        Cause(
            "exhausted-pool",
            "An exhausted connection pool",
            "the storefront has too few connections, and they are held too long",
            "A page waits for a connection, not for the store. With so few of them, held so long, more pages come "
            "than can be served; each waits until the pool gives up, and goes past the cache.",
            evidence.exhausted_pool,
            {
                "slow-network": "A PING on a connection of your own through the link is fast: there is no delay on the "
                "way.",
                "scan-storm": "A GET past the storefront is fast, and so is the server.",
                "noisy-neighbour": "A GET past the storefront is fast; only what goes through the storefront waits.",
                "nothing": "p99 of a page against its healthy value.",
            },
            (
                "Ask the store past the storefront, and compare it with a page. Whose time is it?",
                "The storefront counts pages that came from the cache, and those that did not, in its /metrics, and "
                "how long its own GETs took. Compare with a GET of your own on the very same way.",
                "Pages wait for a connection before anything is sent: a few connections, each held long after its "
                'answer came. The pool is exhausted, and the rest goes past the cache (result="bypass").',
            ),
            ("exhausted-pool", "exhausted", "pool exhaustion", "starv"),
        ),
        Cause(
            "slow-network",
            "A slow network",
            "the way between storefront and store has become long",
            "Every command of the storefront takes one round trip more than the store needs. Server, slow log and "
            "bystanders on another way know nothing of it.",
            evidence.slow_network,
            {
                "exhausted-pool": "A PING on a connection of your own through the same link is slow too, even when "
                "nobody else asks.",
                "noisy-neighbour": "A GET past the link is fast.",
                "scan-storm": "A GET past the link is fast, and the server has time.",
                "unpipelined-deletes": "Pages are slow; changes, which do not take the link, are not late.",
            },
            (
                "Ask the store past the storefront, and compare it with a page. Whose time is it?",
                "Go the storefront's own way: it does not talk to the store directly. Measure each part of the way "
                "by itself, with one command and no load.",
                "redis-cli --latency on the link's port against the store's own port: the way is slow, the network.",
            ),
            ("slow-network", "slow network", "slownetwork", "netem"),
        ),
        Cause(
            "noisy-neighbour",
            "A noisy neighbour",
            "other programs take the core that the store needs",
            "The store has little to do, but is not on a core when a command comes: it waits for its turn. Its clock "
            "runs meanwhile, so even its own execution times rise, of all commands alike.",
            evidence.noisy_neighbour,
            {
                "scan-storm": "CPU of the store's own thread is low; no command has much of its time.",
                "keys-command": "The slow log holds no long command.",
                "slow-network": "A GET past the link is slow too.",
                "eviction-cycle": "INFO stats: evicted_keys stands still.",
            },
            (
                "Ask the store past the storefront. Is it slow for everybody, or only for the storefront?",
                "The server's own CPU time does not account for what its clients wait. What does a process do when it "
                "neither works nor sleeps?",
                "Other processes compute on the store's core (top, ps -o psr, docker stats; /proc/PID/schedstat, "
                "second figure): a noisy neighbour.",
            ),
            ("noisy-neighbour", "noisy neighbo", "noisyneighbo", "burner"),
        ),
        Cause(
            "nothing",
            "Nothing at all",
            "nothing is wrong: all three figures are as on a healthy day",
            "The complaint is not confirmed by any measurement: pages, bystanders and changes are as fast as before. "
            "To say so, with figures, is an answer; to go on searching until something is found is not.",
            evidence.nothing,
            {
                "unpipelined-deletes": "The age of the oldest change over a minute: it stays small.",
                "exhausted-pool": "p99 of a page over a minute: it stays small.",
            },
            (
                "Before you ask why, ask whether. What would a healthy figure be?",
                "Measure a minute of each of the three figures, and compare with what was printed at the start.",
                "All three figures are healthy. There is nothing to find.",
            ),
            ("nothing at all", "no cause", "placebo"),
        ),
    )
}


def find(text: str) -> Cause:
    """A cause by its id. Raises `UsageError`, which suggests the nearest."""
    known = text.strip().lower().replace(" ", "-").replace("_", "-")
    if known in CAUSES:
        return CAUSES[known]
    near = difflib.get_close_matches(known, CAUSES, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"there is no cause {text!r}.{hint} `bin/lab blind causes` lists them.")


def choose(seed: int) -> Cause:
    """The cause of a seed: the same on every machine and stack.

    As many seeds in a row as there are causes, beginning with a multiple of that, have each of them once: so groups
    that are given seeds in a row do not all get the same.
    """
    block, place = divmod(seed, len(CAUSES))

    def drawn(cause: Cause) -> bytes:
        return hashlib.sha256(f"lab blind {block} {cause.id}".encode()).digest()

    return sorted(CAUSES.values(), key=drawn)[place]
