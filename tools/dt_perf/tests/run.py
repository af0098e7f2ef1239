#!/usr/bin/env python3
"""run.py PROGRAM TEST: dt_perf as its users call it. DT_TEST_NIXL=1: NIXL must be there."""
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

PATIENCE = 60
LOCAL = ["local", "local-unmapped", "memcpy", "copy-nt", "process-vm"]
NIXL = ["nixl", "nixl-raw"]
UNVERIFIED = ["--pool", "4M", "--rounds", "2", "--transfers", "20", "--blocks", "8"]
SMALL = [*UNVERIFIED, "--verify"]

program = sys.argv[1]
with_nixl = os.environ.get("DT_TEST_NIXL") == "1"
names = LOCAL + NIXL if with_nixl else LOCAL


def start(*arguments, **more):
    return subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **more)


def end(process, status=0):
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        sys.exit(f"{process.args} does not end: {process.communicate()}")
    if process.returncode != status:
        sys.exit(f"{process.args} has ended with {process.returncode}, not {status}: {out}{err}")
    return out, err


def measure(*arguments):
    """One run: nothing on stderr, and one object of JSON on stdout."""
    out, err = end(start("--json", *arguments))
    assert err == "", err
    report = json.loads(out)
    assert report["dt_perf"] == 1 and re.fullmatch(r"\d+\.\d+\.\d+", report["version"])
    assert set(report["machine"]) == {"cpu", "cores", "memory_bytes", "kernel", "thp", "l3_bytes"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", report["started"])
    if with_nixl:
        assert re.fullmatch(r"\d+\.\d+\.\d+|unknown", report["nixl"]), report["nixl"]
    return report


def check_subjects(report, rows, wanted):
    found = [row["subject"] for row in rows]
    missing = {one["subject"]: one["why"] for one in report["missing"]}
    for name in wanted:
        if name == "copy-nt" and name in missing:
            print(f"SKIPPED copy-nt: {missing[name]}")
            continue
        assert name in found, f"{name} was not measured: {missing.get(name)}"
    for name in missing:
        assert name not in found and missing[name] != ""


def is_positive(value):
    return isinstance(value, (int, float)) and value > 0


def check_times(times):
    assert set(times) == {"p50", "p99", "p999"} and is_positive(times["p50"]), times
    assert times["p50"] <= times["p99"] <= times["p999"], times


def check_sample(sample, subject):
    assert is_positive(sample["gb_per_s"]) and is_positive(sample["transfers_per_s"])
    check_times(sample["submit_ns"])
    check_times(sample["completion_ns"])
    if subject in ("memcpy", "copy-nt", "process-vm"):
        assert sample["poll_ns"] is None
    else:
        check_times(sample["poll_ns"])
    assert set(sample["cpu_s_per_gb"]) == {"initiator", "target"}


def check_transfers(report, wanted, rounds=2):
    for result in report["results"]:
        assert result["test"] == "transfer" and result["rounds"] == rounds
        check_subjects(report, result["rows"], wanted)
        for row in result["rows"]:
            assert len(row["rounds"]) == rounds
            for sample in [*row["rounds"], row["median"]]:
                check_sample(sample, row["subject"])


def transfer():
    report = measure(*SMALL, "--op", "write,read", "--pattern", "contiguous,scattered,permuted",
                     "--block-size", "4K,1000", "--depth", "3")
    shapes = [(one["op"], one["block_size"], one["pattern"]) for one in report["results"]]
    assert sorted(shapes) == sorted((op, size, pattern) for op in ("write", "read")
                                    for size in (4096, 1000)
                                    for pattern in ("contiguous", "scattered", "permuted"))
    assert all((one["blocks"], one["depth"], one["peers"], one["pool_bytes"]) == (8, 3, 1, 1 << 22)
               for one in report["results"])
    check_transfers(report, names)


def region():
    """Of a large region only the beginning is used."""
    wanted = [name for name in names if name in ("local", "local-unmapped", "nixl")]
    report = measure(*UNVERIFIED, "--subjects", ",".join(wanted), "--region", "16G")
    assert all((one["pool_bytes"], one["region_bytes"]) == (1 << 22, 16 << 30) for one in report["results"])
    check_transfers(report, wanted)
    out, err = end(start(*SMALL, "--region", "16G"), 1)
    assert out == "" and "--verify looks at all memory" in err, err


def peers():
    """Several targets, over sockets where it is NIXL, and by time instead of number."""
    report = measure("--pool", "4M", "--rounds", "2", "--seconds", "0.02", "--blocks", "4,16",
                     "--verify", "--peers", "3", "--poll-budget", "100", "--op", "read,write", "--ucx-tls", "tcp",
                     "--huge-pages")
    assert len(report["results"]) == 4 and report["ucx_tls"] == "tcp"
    assert all(one["peers"] == 3 for one in report["results"])
    check_transfers(report, names)


def table():
    out, err = end(start(*SMALL))
    assert err == "", err
    for name in names:
        rows = [line for line in out.splitlines() if line.split(" ")[0] == name]
        assert len(rows) == 2 or (name == "copy-nt" and "not measured: copy-nt" in out), out
    assert with_nixl or "not measured: nixl:" in out
    assert out.count(" 2 rounds\n") == 1, out
    # Titles count in words.
    for test in ("transfer", "add-peer", "in-flight", "idle"):
        out, err = end(start("--test", test, "--subjects", "local", "--rounds", "1", "--pool", "4M",
                             "--blocks", "1", "--seconds", "0.01"))
        assert ", 1 round\n" in out and not re.search(r"\b1 \w+s\b", out), out + err


def others():
    report = measure("--test", "add-peer", "--blocks", "10,1000", "--rounds", "2")
    assert [one["blocks"] for one in report["results"]] == [10, 1000]
    wanted = [name for name in names if name in ("local", "local-unmapped", *NIXL)]
    for result in report["results"]:
        check_subjects(report, result["rows"], wanted)
        for row in result["rows"]:
            assert len(row["rounds"]) == 2 and is_positive(row["median"]["add_ns"])
            assert isinstance(row["median"]["rss_bytes"], (int, float))
    report = measure("--test", "in-flight", "--depth", "100,1", "--rounds", "1")
    assert [one["in_flight"] for one in report["results"]] == [1, 100]
    for result in report["results"]:
        check_subjects(report, result["rows"], wanted)
        for row in result["rows"]:
            figure = "poll_ns" if row["subject"] in NIXL else "ns_per_byte"
            assert is_positive(row["median"][figure])
    report = measure("--test", "idle", "--rounds", "1", "--seconds", "0.05")
    modes = {(row["subject"], row["mode"]) for row in report["results"][0]["rows"]}
    wanted = {(name, mode) for name in ("local", "nixl") if name in names
              for mode in ("none", "wait", "poll-1ms", "sleep-1ms", "progress-thread")}
    assert modes == wanted - {("local", "progress-thread")}, modes
    assert all(row["median"]["cpu_share"] >= 0 for row in report["results"][0]["rows"])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def connect_to(address, *arguments):
    """The other side may not listen yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        process = start("--connect", address, *arguments)
        out, err = process.communicate(timeout=PATIENCE)
        if "cannot connect" not in err or time.monotonic() > deadline:
            return process.returncode, out, err
        time.sleep(0.05)


def connect():
    address = free_port()
    listener = start("--listen", address)
    status, out, err = connect_to(address, "--json", "--peers", "2", *SMALL)
    assert status == 0 and err == "", err
    check_transfers(json.loads(out), names)
    out, err = end(listener)
    assert out == "" and err == ""


# Of wire.h: the numbers of struct request, and the size of struct reply.
LONG = ["magic", "pool", "region", "num_blocks", "block_len", "seed", "slice", "transfers"]
SHORT = ["what", "subject", "memory", "memories", "peer", "peers", "fill", "op", "pattern",
         "huge_pages", "progress_thread", "busy"]
HELLO, POOLS, OPEN, FILL, BEGIN, END, CHECK, CLOSE, BYE = range(9)
REPLY = 2 * 8 + 4 * 4 + 128 + 512 + 8192


def request(what, **fields):
    fields = {"magic": 0x3130667265707464, "what": what, **fields}
    assert set(fields) <= {*LONG, *SHORT}
    return struct.pack("=8Q12I256x", *(fields.get(name, 0) for name in LONG + SHORT))


def connection(address):
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            host, port = address.split(":")
            return socket.create_connection((host, int(port)), PATIENCE)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def is_answered(peer, asked):
    """Whether the target does what it is asked for; None: it has ended."""
    peer.sendall(asked)
    reply = b""
    while len(reply) < REPLY:
        try:
            more = peer.recv(REPLY - len(reply))
        except ConnectionResetError:
            more = b""
        if not more:
            return None
        reply += more
    return struct.unpack_from("=I", reply, 16)[0] == 1


def hostile():
    """Who asks for what is not in the memory is told off, and does not reach it."""
    blocks = {"num_blocks": 256, "block_len": 4096}
    check = {"memory": 1, "peers": 1, "slice": 8, "transfers": 1, **blocks}
    most = 2**64 - 1
    for what, wrong in [
            (POOLS, {"pool": most}),
            (POOLS, {"pool": 0}),
            (OPEN, {"subject": 5, **blocks, "num_blocks": 257}),
            (OPEN, {"subject": 1, **blocks, "num_blocks": 2**52}),
            (OPEN, {"subject": 1, **blocks, "block_len": 0}),
            (OPEN, {"subject": 3, **blocks}),
            (OPEN, {"subject": 7, **blocks}),
            (FILL, {"memory": 2}),
            (FILL, {"memory": 3}),
            (CHECK, {**check, "memory": 2}),
            (CHECK, {**check, "num_blocks": 2**32}),
            (CHECK, {**check, "num_blocks": 2**61, "block_len": 8}),
            (CHECK, {**check, "num_blocks": 0}),
            (CHECK, {**check, "slice": 0}),
            (CHECK, {**check, "slice": 257}),
            (CHECK, {**check, "peers": 0}),
            (CHECK, {**check, "peers": 2**32 - 1}),
            (CHECK, {**check, "peer": 1}),
            (CHECK, {**check, "pattern": 3}),
            (CHECK, {**check, "op": 2})]:
        address = free_port()
        listener = start("--listen", address)
        with connection(address) as peer:
            assert is_answered(peer, request(HELLO, peers=1))
            assert is_answered(peer, request(POOLS, pool=1 << 20, memories=3))
            assert is_answered(peer, request(FILL, memory=1, fill=9))
            # That nothing was moved is wrong, but can be asked for.
            assert is_answered(peer, request(CHECK, **check)) is False
            assert is_answered(peer, request(what, **wrong)) is None, (what, wrong)
        out, err = end(listener, 1)
        assert out == "" and "is not dt_perf of this version" in err, (what, wrong, err)
        assert err.count("\n") == 1, err
    # Memory stays as long as something uses it.
    address = free_port()
    listener = start("--listen", address)
    with connection(address) as peer:
        pools = request(POOLS, pool=1 << 20, memories=3)
        assert is_answered(peer, request(HELLO, peers=1)) and is_answered(peer, pools)
        assert is_answered(peer, request(OPEN, subject=1, **blocks))
        assert is_answered(peer, request(CLOSE)) and is_answered(peer, pools)
        assert is_answered(peer, request(OPEN, subject=1, **blocks))
        assert is_answered(peer, pools) is None
    end(listener, 1)


def silent():
    """Who says nothing, or not enough, does not keep the listener from its initiator."""
    address = free_port()
    listener = start("--listen", address)
    with connection(address), connection(address) as hasty:
        hasty.sendall(request(HELLO, peers=7)[:100])
        hasty.close()
        status, out, err = connect_to(address, "--json", "--subjects", "local", *SMALL)
        assert status == 0 and err == "", err
        check_transfers(json.loads(out), ["local"])
        out, err = end(listener)
        assert out == "" and err == ""


def refused():
    for arguments, sentence in [
            (["--bogus"], 'there is no option "--bogus"'),
            (["file"], 'there is no option "file"'),
            (["--op", "push"], '--op is "push", but must be write or read'),
            (["--poll-budget", "0"], '--poll-budget is "0", but must be a number from 1 to'),
            (["--blocks", "0"], '--blocks is "0", but must be a number from 1 to'),
            (["--blocks", "-1"], '--blocks is "-1", but must be'),
            (["--pool=1X"], '--pool is "1X", but must be'),
            (["--blocks", "1,,2"], '--blocks is "", but must be'),
            (["--seed="], '--seed is "", but must be'),
            (["--seed", "1" * 40], f'--seed is "{"1" * 40}", but must be'),
            (["--rounds"], "--rounds needs a value"),
            (["--verify=yes"], "--verify takes no value"),
            (["--seconds", "nan"], '--seconds is "nan", but must be'),
            (["--subjects", "local,all"], '--subjects is "all", but must be local, local-unmapped'),
            (["--test", "idle", "--subjects", "memcpy"], "none of the --subjects"),
            (["--test", "idle", "--peers", "2"], "--test idle has one target"),
            (["--listen", "1", "--json"], "--listen takes no other option"),
            (["--quiet", "--listen=1"], "--listen takes no other option"),
            (["--pool", "1M"], "has room for 16 blocks of 64 KiB at each, but a transfer has 256"),
            (["--pool", "1024G"], "this needs 5 TiB of memory"),
            (["--connect", "127.0.0.1:1"], "cannot connect to 127.0.0.1:1"),
            (["--connect", "nowhere:port"], 'cannot find the address "nowhere:port"'),
            (["--test", "in-flight", "--connect", "127.0.0.1:1"], "so it does not work with")]:
        out, err = end(start(*arguments), 1)
        assert out == "" and err.startswith("dt_perf: ") and sentence in err, err
        assert err.count("\n") == 1, err
    out, err = end(start("--help"))
    for option in ("--op", "--pattern", "--json", "--listen", "--connect", "DT_NIXL_LIB_DIR"):
        assert option in out
    assert err == "" and max(map(len, out.splitlines())) <= 100


def without_nixl():
    environment = dict(os.environ, DT_NIXL_LIB_DIR="/nonexistent")
    out, err = end(start("--json", *SMALL, env=environment))
    report = json.loads(out)
    assert err == "" and report["nixl"] is None
    assert sorted(one["subject"] for one in report["missing"]) == NIXL
    assert all("/nonexistent" in one["why"] for one in report["missing"])
    check_transfers(report, LOCAL)
    out, err = end(start("--subjects", "nixl", env=environment), 1)
    assert out == "" and "nothing can be measured: nixl: " in err and err.count("\n") == 1, err


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_there(pid):
    return state(pid) not in (None, "Z")


def busy(pid):
    """Has used processor time, so is past its start."""
    with open(f"/proc/{pid}/stat") as file:
        return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) > 20


def killed():
    for name in names:
        process = start("--pool", "4M", "--subjects", name, "--seconds", "600", "--blocks", "8")
        wait_for("it does not start", lambda: busy(process.pid))
        target = children(process.pid)[0]
        os.kill(target, signal.SIGKILL)
        if name in ("memcpy", "copy-nt"):
            # They have no use for it, and would notice at the end of the round.
            process.kill()
            process.communicate()
            continue
        out, err = end(process, 1)
        assert out == "" and "target 0 was ended by signal 9" in err, err
        assert err.count("\n") == 1, err
    for number in (signal.SIGINT, signal.SIGKILL):
        process = start("--pool", "4M", "--subjects", "local", "--seconds", "600", "--peers", "2",
                        "--blocks", "16")
        wait_for("it does not start", lambda: busy(process.pid))
        targets = children(process.pid)
        process.send_signal(number)
        out, err = end(process, -number)
        assert out == "" and err == "", err
        wait_for("a target is left", lambda: not any(map(is_there, targets)))
    if not with_nixl:
        print("SKIPPED: a target that is stopped ends with the initiator; only NIXL stops it long")
        return
    process = start("--test", "in-flight", "--depth", "1", "--rounds", "100000")
    wait_for("it does not start", lambda: busy(process.pid))
    target = children(process.pid)[0]
    wait_for("the target is not stopped", lambda: state(target) == "T")
    process.kill()
    process.communicate()
    wait_for("a stopped target is left", lambda: not is_there(target))


globals()[sys.argv[2]]()
