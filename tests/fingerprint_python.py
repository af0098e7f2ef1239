"""What Python makes of JSON texts: the reference for the fingerprint.

Each line of standard input is one text, as the hex digits of its UTF-8. The answer is one line each:
"REFUSED", or the fingerprint ("-" where it is empty) and the canonical text after one space.
"""

import hashlib
import json
import sys


def answer(text):
    try:
        config = json.loads(text)
    except ValueError:
        return "REFUSED"
    if not isinstance(config, dict):
        return "REFUSED"
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
    fingerprint = hashlib.sha256(canonical.encode("ascii")).hexdigest()[:16] if config else "-"
    return f"{fingerprint} {canonical}"


def main():
    # The limit of 4300 digits came with Python 3.11 and its contemporaries; it can be configured.
    if not hasattr(sys, "set_int_max_str_digits"):
        sys.exit("the fingerprint tests need a Python that limits the digits of integers (3.11 or later)")
    sys.set_int_max_str_digits(4300)
    for line in sys.stdin.buffer:
        text = bytes.fromhex(line.decode("ascii")).decode("utf-8")
        sys.stdout.write(answer(text) + "\n")


main()
