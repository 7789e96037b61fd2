#!/usr/bin/env python3
"""Drives Embla by embla-bench, a client in C++, against a cluster that runs.

    embla_driver.py BIN COORDINATOR ADMIN TRANSPORT TABLES ROWS DIM IDS BAG DTYPE EXPONENT

Says READY, and then measures one case for each line of its input; bench/peers/driver_loop.h
describes them. embla-bench creates the tables of each case, compares lookups with plain reads and
checks that an update moves its rows before it measures, and deletes the tables.
"""

import json
import subprocess
import sys

IDS_FIRST = 200_000  # Looked up to learn how fast a case is.
REQUESTS_FIRST_MIN, REQUESTS_FIRST_MAX = 4, 2000
REQUESTS_MIN, REQUESTS_MAX = 4, 200_000


def first_requests(shape):
    """The requests of the measurement that tells how many requests take how long."""
    ids = int(shape[0]) * int(shape[3])
    return min(max(IDS_FIRST // ids, REQUESTS_FIRST_MIN), REQUESTS_FIRST_MAX)


def command_of(cluster, shape, operation, in_flight, requests):
    """The command line of one case."""
    binaries, coordinator, admin, transport = cluster
    tables, rows, dim, ids, bag, dtype, exponent = shape
    command = [
        f"{binaries}/embla-bench",
        "--coordinator",
        coordinator,
        "--admin",
        admin,
        "--transport",
        transport,
        "--tables",
        tables,
        "--rows",
        rows,
        "--dim",
        dim,
        "--ids",
        ids,
        "--bag",
        bag,
        "--dtype",
        dtype,
        "--wire",
        dtype,
        "--distribution",
        "uniform" if float(exponent) == 0 else f"zipf:{exponent}",
        "--update-share",
        "0" if operation == "lookup" else "1",
        "--in-flight",
        in_flight,
        "--requests",
        str(requests),
        "--rounds",
        "1",
        "--no-ceilings",
        "--timeout",
        "120",
        "-o",
        "json",
    ]
    if operation != "lookup":
        command += ["--optimizer", operation]
    if int(tables) > 1:
        command.append("--pooled")  # One id in a bag is a bag, too, where a model has many tables.
    return command


def measure(command):
    """Rows and requests per second, and the median latency in milliseconds."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"embla-bench: {done.stderr}{done.stdout}")
    case = json.loads(done.stdout)["cases"][0]
    latency = case["lookup_latency"] or case["update_latency"]
    requests = case["rows_per_second"] / (case["tables"] * case["ids"])
    return case["rows_per_second"], requests, latency["p50_us"] / 1e3


def main(arguments):
    if len(arguments) != 11:
        sys.exit(
            "usage: embla_driver.py BIN COORDINATOR ADMIN TRANSPORT TABLES ROWS DIM IDS BAG "
            "DTYPE EXPONENT"
        )
    cluster, shape = arguments[:4], arguments[4:]
    per_second = {}  # Requests, by case: embla-bench is told how many, not how long.
    print("READY", flush=True)
    for line in sys.stdin:
        _, operation, in_flight, seconds = line.split()
        case = (operation, in_flight)
        if case not in per_second:
            first = command_of(cluster, shape, operation, in_flight, first_requests(shape))
            per_second[case] = measure(first)[1]
        requests = min(max(int(per_second[case] * float(seconds)), REQUESTS_MIN), REQUESTS_MAX)
        command = command_of(cluster, shape, operation, in_flight, requests)
        rate, per_second[case], p50 = measure(command)
        print(json.dumps({"rows_per_second": rate, "p50_ms": p50}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
