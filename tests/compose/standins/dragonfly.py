#!/usr/bin/python3
"""Stands in for Dragonfly: a Redis behind one port that speaks RESP and HTTP, with Dragonfly's metric names.

It takes Dragonfly's options as compose.yaml gives them and refuses others. What it cannot stand in for:
threads, Dragonfly's SCAN, its own slow log. Its numbers are Redis's.
"""

import asyncio
import re
import signal
import sys

SOCKET = "/tmp/redis.sock"
KNOWN = {
    "logtostderr", "proactor_threads", "maxmemory", "dbfilename", "version_check", "slowlog_log_slower_than",
    "slowlog_max_len", "max_multi_bulk_len",
}  # fmt: skip


def options(arguments: list[str]) -> dict[str, str]:
    found = {}
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in KNOWN:
            sys.exit(f"ERROR: Unknown command line flag '{argument}'")
        found[name] = value
    return found


def amount(text: str) -> int:
    read = re.fullmatch(r"(\d+)([a-z]*)", text.lower())
    if not read:
        sys.exit(f"ERROR: '{text}' is no amount of memory")
    return int(read[1]) * {"": 1, "b": 1, "mb": 2**20, "gb": 2**30}[read[2]]


async def info() -> dict[str, str]:
    """INFO everything of the Redis, as a dictionary."""
    reader, writer = await asyncio.open_unix_connection(SOCKET)
    writer.write(b"INFO everything\r\n")
    size = int((await reader.readline())[1:])
    text = (await reader.readexactly(size)).decode()
    writer.close()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def exposition(i: dict[str, str]) -> str:
    """INFO under the metric names of Dragonfly v1.40.1, where most counters of seconds have no _total."""
    keys = dict(pair.split("=") for pair in i.get("db0", "keys=0,expires=0").split(","))
    lines = []

    def metric(name: str, kind: str, *samples: tuple[str, object]) -> None:
        lines.append(f"# TYPE dragonfly_{name} {kind}")
        lines.extend(f"dragonfly_{name}{labels} {value}" for labels, value in samples)

    metric("version", "gauge", ('{version="standin"}', 1))
    metric("uptime_in_seconds", "counter", ("", i["uptime_in_seconds"]))
    metric("db_keys", "gauge", ('{db="db0"}', keys["keys"]))
    metric("db_keys_expiring", "gauge", ('{db="db0"}', keys["expires"]))
    metric("connected_clients", "gauge", ('{listener="main"}', i["connected_clients"]))
    metric("blocked_clients", "gauge", ("", i["blocked_clients"]))
    metric("max_clients", "gauge", ("", i["maxclients"]))
    metric("memory_used_bytes", "gauge", ("", i["used_memory"]))
    metric("memory_used_peak_bytes", "gauge", ("", i["used_memory_peak"]))
    metric("memory_max_bytes", "gauge", ("", i["maxmemory"]))
    metric("used_memory_rss_bytes", "gauge", ("", i["used_memory_rss"]))
    metric("commands_processed_total", "counter", ('{listener="main"}', i["total_commands_processed"]))
    for name, key in (("keyspace_hits_total", "keyspace_hits"), ("keyspace_misses_total", "keyspace_misses")):
        metric(name, "counter", ("", i[key]), ('{db="db0"}', i[key]))
    metric("expired_keys_total", "counter", ('{db="db0"}', i["expired_keys"]))
    metric("evicted_keys_total", "counter", ('{db="db0"}', i["evicted_keys"]))
    metric("net_input_bytes_total", "counter", ("", i["total_net_input_bytes"]))
    metric("net_output_bytes_total", "counter", ("", i["total_net_output_bytes"]))
    metric("connections_received_total", "counter", ("", i["total_connections_received"]))
    commands: dict[str, dict[str, str]] = {}
    for name, value in i.items():
        if name.startswith("cmdstat_"):
            stats = dict(pair.split("=") for pair in value.split(","))
            commands[name.removeprefix("cmdstat_").replace("|", "_")] = stats
    metric("commands_total", "counter", *((f'{{cmd="{c}"}}', s["calls"]) for c, s in commands.items()))
    metric(
        "commands_duration_seconds",
        "counter",
        *((f'{{cmd="{c}"}}', int(s["usec"]) / 1e6) for c, s in commands.items()),
    )
    # An unpipelined client leaves all of these unchanged on the real Dragonfly, too.
    for name, kind in (
        ("pipeline_queue_length", "gauge"),
        ("tx_queue_len", "gauge"),
        ("send_delay_seconds", "gauge"),
        ("pipeline_commands_total", "counter"),
        ("pipeline_commands_duration_seconds", "counter"),
        ("pipeline_queue_wait_duration_seconds", "counter"),
        ("pipeline_dispatch_calls_total", "counter"),
        ("pipeline_dispatch_commands_total", "counter"),
        ("pipeline_dispatch_flush_total", "counter"),
        ("pipeline_dispatch_flush_duration_seconds", "counter"),
        ("pipeline_throttle_total", "counter"),
        ("cmd_squash_hop_total", "counter"),
        ("cmd_squash_commands_total", "counter"),
        ("fiber_switch_total", "counter"),
        ("fiber_switch_delay_seconds_total", "counter"),
        ("fiber_longrun_total", "counter"),
        ("fiber_longrun_seconds", "counter"),
    ):
        metric(name, kind, ("", 0))
    metric("fibers_count", "gauge", ("", 1))
    metric("reply_total", "counter", ("", i["total_commands_processed"]))
    metric("reply_duration_seconds", "counter", ("", 0))
    lines.append("# TYPE dragonfly_pipeline_latency_seconds summary")
    lines += [
        'dragonfly_pipeline_latency_seconds{quantile="0.99"} NaN',
        "dragonfly_pipeline_latency_seconds_sum 0",
    ]
    lines.append("dragonfly_pipeline_latency_seconds_count 0")
    return "\n".join(lines) + "\n"


async def answer_http(first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    path = (first + await reader.readline()).split()[1].decode()
    if path == "/metrics":
        status, body = 200, exposition(await info())
    elif path == "/healthz":
        await info()  # raises OSError if the Redis behind does not answer
        status, body = 200, "OK\n"
    else:
        status, body = 404, f"not found: {path}\n"
    head = f"HTTP/1.1 {status} .\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    await writer.drain()
    writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        first = await reader.read(4)
        if first == b"GET ":
            await answer_http(first, reader, writer)
            return
        server_reader, server_writer = await asyncio.open_unix_connection(SOCKET)
    except OSError:
        writer.close()
        return
    server_writer.write(first)
    await asyncio.gather(pump(reader, server_writer), pump(server_reader, writer))


async def main() -> None:
    given = options(sys.argv[1:])
    if amount(given["maxmemory"]) < int(given.get("proactor_threads", 1)) * 256 * 2**20:
        sys.exit("There are too many threads for this maxmemory. Exiting")
    server = await asyncio.create_subprocess_exec(
        "redis-server", "--port", "0", "--unixsocket", SOCKET, "--save", "", "--appendonly", "no",
        "--maxmemory", given["maxmemory"],
        "--slowlog-log-slower-than", given.get("slowlog_log_slower_than", "10000"),
        "--slowlog-max-len", given.get("slowlog_max_len", "20"),
    )  # fmt: skip
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.terminate)
    listener = await asyncio.start_server(serve, "0.0.0.0", 6379, limit=1 << 18, backlog=4096)
    code = await server.wait()  # SHUTDOWN over the protocol ends the server, and with it the container
    listener.close()
    sys.exit(code)


asyncio.run(main())
