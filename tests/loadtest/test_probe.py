"""The open-loop probe against a real server."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from loadtest.histogram import Histogram
from loadtest.probe import openloop
from loadtest.probe.openloop import OpenLoop, Plan
from loadtest.probe.record import percentile
from loadtest.resp import Server as Address
from tests.loadtest.conftest import end_stdin

STALL = 0.5


def merged(lines: list[dict[str, Any]], which: str) -> Histogram:
    """The histograms of all intervals added up."""
    total = Histogram()
    for line in lines:
        total.add(Histogram.decode(line[which]))
    return total


def values_above(histogram: Histogram, low_us: int) -> list[int]:
    """Every recorded value above `low_us`, in ascending order."""
    return [value for value, count in histogram.buckets() for _ in range(count) if value > low_us]


def distance_from_even(values: list[int], low: int, high: int) -> float:
    """Kolmogorov-Smirnov distance between the values and the uniform distribution over low..high."""
    steps = [(index / len(values), (value - low) / (high - low)) for index, value in enumerate(values)]
    return max(abs(expected - seen) for seen, expected in steps)


def assert_nothing_is_lost(lines: list[dict[str, Any]]) -> None:
    """Every request is accounted for, and each histogram holds what was received."""
    sent, received, errors = (sum(line[key] for line in lines) for key in ("sent", "received", "errors"))
    assert sent == received + errors + lines[-1]["in_flight"]
    for line in lines:
        for which in ("intended", "service"):
            assert Histogram.decode(line[which]).total == line["received"]


@pytest.mark.alone
def test_a_stall_is_seen_by_each_request_that_was_due_in_it(server: Any, start_probe: Any) -> None:
    """A stall of S seconds at rate R yields R x S latencies, spread evenly over 0..S: none is omitted."""
    rate = 200
    probe = start_probe("--url", server.url, "--rate", str(rate))
    lines = [probe.next_line()]
    server.client().execute_command("DEBUG", "SLEEP", str(STALL))
    lines += [probe.next_line(), probe.next_line(), *probe.end()]
    assert_nothing_is_lost(lines)
    low_us = 50_000
    late = values_above(merged(lines, "intended"), low_us)
    longest = late[-1]
    assert longest >= STALL * 1e6 * 0.98, "the first request due in the stall waits for almost all of it"
    expected = rate * (longest - low_us) / 1e6
    assert len(late) == pytest.approx(expected, rel=0.15)
    assert distance_from_even(late, low_us, longest) < 0.1
    still_sent_on_time = values_above(merged(lines, "service"), low_us)
    assert len(still_sent_on_time) >= 0.9 * len(late), "requests left on schedule although none was answered"


def test_by_due_time_a_stall_is_where_it_made_wait(server: Any, start_probe: Any) -> None:
    """A reply counts in the interval in which its request was due; each line is complete, and none is left out."""
    probe = start_probe("--url", server.url, "--interval-seconds", "0.25", "--by-due-time")
    probe.next_line()
    server.freeze()
    lines = [probe.next_line() for _ in range(4)]
    server.resume()
    lines += [probe.next_line() for _ in range(12)] + probe.end()
    arrived, due = ([line for line in lines if line["by"] == by] for by in ("arrival", "due"))
    empty = [line["t"] for line in arrived if line["sent"] and not line["received"]]
    assert len(empty) >= 2, "no reply came for more than an interval"
    times = [line["t"] for line in due]
    assert times == sorted(times) and {line["t"] for line in arrived} <= {*times, arrived[0]["t"]}
    for line in due:
        assert line["sent"] == line["received"] and line["errors"] == line["in_flight"] == 0
        assert Histogram.decode(line["intended"]).total == line["received"]
        assert (line["max_us"] > 100_000) >= (line["t"] in empty)


@pytest.mark.alone
def test_a_stall_of_the_probe_itself_shows_in_intended_and_lag_only(server: Any, start_probe: Any) -> None:
    """Requests that the probe itself sent late are late from the intended time only, and lag shows its stall."""
    probe = start_probe("--url", server.url, "--rate", "200")
    lines = [probe.next_line()]
    probe.process.send_signal(signal.SIGSTOP)
    time.sleep(STALL)
    probe.process.send_signal(signal.SIGCONT)
    lines += [probe.next_line(), *probe.end()]
    late = values_above(merged(lines, "intended"), 50_000)
    late_from_send = values_above(merged(lines, "service"), 50_000)
    assert len(late) >= 0.8 * 200 * (STALL - 0.05)
    assert len(late_from_send) <= 0.1 * len(late)
    assert max(line["lag_p99_us"] for line in lines) >= 0.9 * STALL * 1e6


def test_the_server_may_die_and_come_back(server: Any, start_probe: Any) -> None:
    """While the server is gone each request is an error; afterwards replies come, for keys that exist."""
    probe = start_probe("--url", server.url, "--keys", "7")
    lines = [probe.next_line()]
    server.kill()
    while lines[-1]["received"]:
        lines.append(probe.next_line())
    server.start()
    while not lines[-1]["received"]:
        lines.append(probe.next_line())
    assert server.client().dbsize() == 7
    lines += probe.end()
    assert_nothing_is_lost(lines)
    down = next(line for line in lines if not line["received"])
    assert down["errors"] >= down["sent"] > 0
    assert down["connected"] == 0
    assert down["last_error"]


def test_what_was_in_flight_when_the_server_died_is_an_error(server: Any, start_probe: Any) -> None:
    """Requests that a frozen server held when it was killed are counted as errors."""
    probe = start_probe("--url", server.url, "--connections", "3")
    lines = [probe.next_line()]
    server.freeze()
    while lines[-1]["in_flight"] < 100:
        lines.append(probe.next_line())
    server.kill()
    while lines[-1]["in_flight"]:
        lines.append(probe.next_line())
    lines += probe.end()
    assert sum(line["errors"] for line in lines) >= 100
    assert_nothing_is_lost(lines)


def test_a_server_that_comes_later_is_waited_for(server: Any, start_probe: Any) -> None:
    """The probe may be started before the server."""
    server.kill()
    probe = start_probe("--url", server.url)
    lines = [probe.next_line()]
    assert lines[0]["errors"] == lines[0]["sent"] > 0
    server.start()
    while not lines[-1]["received"]:
        lines.append(probe.next_line())
    assert_nothing_is_lost(lines + probe.end())


def test_moving_over_to_fresh_connections_loses_nothing(server: Any, start_probe: Any) -> None:
    """With --reconnect-seconds each connection is replaced in time, old connections close, and no request fails."""
    probe = start_probe(
        "--url", server.url, "--connections", "4", "--reconnect-seconds", "0.2", "--duration", "2"
    )
    lines = [probe.next_line()]
    clients = server.client().client_list()
    lines += probe.end(None)
    assert sum(line["errors"] for line in lines) == 0
    assert sum(line["sent"] for line in lines) == sum(line["received"] for line in lines) == 400
    assert server.client().info("stats")["total_connections_received"] >= 4 * 2 / 0.2 * 0.7
    assert sum(client["name"] == "probe:main" for client in clients) <= 4 * 2


@pytest.mark.alone
def test_moving_over_during_a_stall_loses_nothing(server: Any, start_probe: Any) -> None:
    """A connection that is replaced while replies are due on it stays until they have come."""
    probe = start_probe("--url", server.url, "--reconnect-seconds", "0.1", "--duration", "3")
    lines = [probe.next_line()]
    server.client().execute_command("DEBUG", "SLEEP", str(STALL))
    lines += probe.end(None)
    assert sum(line["received"] for line in lines) == 600
    assert lines[-1]["max_us"] < max(line["max_us"] for line in lines), "the stall was over before the end"
    assert_nothing_is_lost(lines)


def test_it_takes_turns_on_all_its_connections(server: Any, start_probe: Any) -> None:
    """Each of the connections carries its share of the requests."""
    probe = start_probe("--url", server.url, "--connections", "50", "--name", "pool", "--rate", "500")
    lines = [probe.next_line()]

    def last_commands() -> list[str]:
        return [one["cmd"] for one in server.client().client_list() if one["name"] == "probe:pool"]

    while set(last_commands()) != {
        "get"
    }:  # on a busy machine the last connections are made after the first line
        lines.append(probe.next_line())
        assert len(lines) < 10, last_commands()
    assert lines[-1]["connected"] == len(last_commands()) == 50
    assert_nothing_is_lost([*lines, *probe.end()])


def test_keys_that_vanish_are_written_again(server: Any, start_probe: Any) -> None:
    """After a FLUSHALL the probe's keys come back, with a time to live, and no others."""
    probe = start_probe("--url", server.url, "--keys", "5", "--key-prefix", "mine")
    probe.next_line()
    server.client().flushall()
    probe.next_line()
    probe.next_line()
    assert sorted(server.client().keys()) == [f"mine:{number}" for number in range(5)]
    assert 0 < server.client().ttl("mine:0") <= 3600
    probe.end()


def test_read_only_writes_nothing_and_reads_what_is_there(server: Any, start_probe: Any) -> None:
    """With --read-only, as for a replica, the probe GETs another probe's keys, found or not, and never sends a SET."""
    server.client().set("other:0", "value")
    lines = start_probe("--url", server.url, "--read-only", "--key-prefix", "other", "--duration", "1").end(
        None
    )
    assert_nothing_is_lost(lines)
    assert sum(line["received"] for line in lines) == 200
    assert server.client().info("commandstats")["cmdstat_set"]["calls"] == 1


def test_ping_writes_nothing(server: Any, start_probe: Any) -> None:
    """--command ping measures the floor and leaves no key behind."""
    lines = start_probe("--url", server.url, "--command", "ping", "--duration", "0.5").end(None)
    assert sum(line["received"] for line in lines) == 100
    assert server.client().dbsize() == 0


def test_a_duration_no_longer_than_the_interval_is_one_line(server: Any, start_probe: Any) -> None:
    """A probe whose --duration is no longer than its interval prints one line, whenever it begins."""
    begun = [
        start_probe("--url", server.url, "--duration", "0.4", "--interval-seconds", interval)
        for interval in ("0.4", "60")
    ]
    for probe in begun:
        (line,) = probe.end(None)
        assert line["received"] == 80
        assert_nothing_is_lost([line])


@pytest.mark.parametrize("into_s", [0.0, 0.0001, 0.1, 0.2399, 0.2401, 0.2499])
def test_the_first_interval_is_no_shorter_than_half_of_one(
    into_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the start lies between two whole multiples, the first interval ends at one, and not at once.

    An interval of a few microseconds has no length in the whole milliseconds of a run's file, which was once taken for
    a broken line. `into_s`: how far the wall clock is into an interval.
    """
    wall = 1_800_000_000_000_000_000 + round(into_s * 1e9)
    monkeypatch.setattr(openloop, "time_ns", lambda: wall)
    loop = OpenLoop(Plan(server=Address("127.0.0.1", 1), interval_seconds=0.25), print, print)
    length = loop._first_close(0)
    assert 0.125e9 <= length <= 0.375e9
    assert (wall + 10_000_000 + length) % 250_000_000 == 0


def test_after_a_stall_intervals_end_at_whole_multiples_again() -> None:
    """Else the two probes of a phase would be compared over different times for the rest of a run."""
    loop = OpenLoop(Plan(server=Address("127.0.0.1", 1), interval_seconds=0.25), lambda _: None, print)
    loop._closes_at = 10_250_000_000
    loop._close_interval(10_900_000_000)
    assert loop._closes_at == 11_000_000_000
    loop._close_interval(11_000_100_000)
    assert loop._closes_at == 11_250_000_000


def test_a_password_is_used_and_its_absence_is_an_error(guarded_server: Any, start_probe: Any) -> None:
    """Error replies are errors, not latencies; with the right password there are none."""
    without = start_probe("--url", guarded_server.url, "--duration", "0.5").end(None)
    assert sum(line["received"] for line in without) == 0
    assert sum(line["errors"] for line in without) == 100
    assert "NOAUTH" in without[0]["last_error"]
    url = guarded_server.url.replace("//", "//:open%20sesame@")
    signed_in = start_probe("--url", url, "--duration", "0.5").end(None)
    assert sum(line["received"] for line in signed_in) == 100


def test_what_the_server_never_answered_is_in_flight_at_the_end(server: Any, start_probe: Any) -> None:
    """On SIGINT during a stall the probe ends at once, and reports how many requests are in flight and since when."""
    probe = start_probe("--url", server.url)
    lines = [probe.next_line()]
    server.freeze()
    while lines[-1]["in_flight"] <= 100:
        lines.append(probe.next_line())
    lines += probe.end(signal.SIGINT)
    assert lines[-1]["in_flight"] > 100
    assert lines[-1]["oldest_in_flight_us"] >= 1e6 * lines[-1]["in_flight"] / 200 * 0.9
    assert_nothing_is_lost(lines)


def test_it_ends_quietly_when_nobody_reads(server: Any, start_probe: Any) -> None:
    """A closed stdout ends the probe without a traceback."""
    probe = start_probe("--url", server.url)
    probe.process.stdout.close()
    probe.process.wait(timeout=30)
    assert probe.process.stderr.read() == ""


def test_metrics_are_served_on_request(server: Any, start_probe: Any, unused_port: int) -> None:
    """--metrics-port offers both latencies as Prometheus histograms, with as many values as were received."""
    from urllib.request import urlopen

    probe = start_probe("--url", server.url, "--metrics-port", str(unused_port), "--duration", "3")
    received = probe.next_line()["received"]
    with urlopen(f"http://127.0.0.1:{unused_port}/metrics") as answer:
        text = answer.read().decode()
    for origin in ("intended", "send"):
        [line] = [
            line
            for line in text.splitlines()
            if line.startswith("probe_latency_seconds_count") and f'"{origin}"' in line
        ]
        assert float(line.split()[-1]) >= received


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (99, 4), (1, 1), (100, 4)])
def test_percentile_is_the_nearest_rank(percent: float, expected: int) -> None:
    """The percentile is a value that was measured."""
    assert percentile([1, 2, 3, 4], percent) == expected
    assert percentile([], percent) == 0


def test_addresses_are_read_in_full() -> None:
    """User, password, database and IPv6 hosts of a redis:// address arrive decoded."""
    assert Address.from_url("redis://me:p%40ss@[::1]:7000/3") == Address("::1", 7000, 3, "me", "p@ss")
    assert Address.from_url("redis://example") == Address("example", 6379)


def test_end_of_stdin_is_the_end(server: Any, start_probe: Any) -> None:
    """With --until-stdin-ends a probe goes on while stdin is open; then it prints a last line and exits with 0."""
    probe = start_probe("--url", server.url, "--rate", "50", "--until-stdin-ends")
    for word in ("anything", "more"):
        probe.process.stdin.write(word + "\n")
        probe.process.stdin.flush()
        assert probe.next_line()["received"] > 0
    end_stdin(probe.process)
    assert probe.end(None)[-1]["in_flight"] == 0
