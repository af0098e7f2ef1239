"""guide_test.py CC CXX: what docs/guide.md says, held against the sources.

Each sentence that it quotes is one of the library's, and none of those about peers is missing; each
function and constant that it names exists; its programs compile; and its links lead somewhere.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDE = (ROOT / "docs/guide.md").read_text()

# What the examples of the guide take for granted.
PRELUDE = """
#include <stddef.h>
#include <stdint.h>
void ok(dt_status status);
void free_blocks(const void *msg, size_t len);
void keep_for_later(void);
"""
C_PRELUDE = """
#include <dt.h>
%s
void finish(uint64_t request, dt_status status);
void guide(size_t num_blocks, size_t block_len, uint64_t request_id);
void guide(size_t num_blocks, size_t block_len, uint64_t request_id)
{
    static unsigned char blob[65536];
%s
    (void)closed;
}
"""
CPP_PRELUDE = """
#include <dt.hpp>
#include <array>
void finish(std::uint64_t request, dt::status status);
int complain(dt::status status, const std::string &text);
int guide(std::size_t num_blocks, std::size_t block_len, const dt::blob &blob, std::uint64_t request_id);
int guide(std::size_t num_blocks, std::size_t block_len, const dt::blob &blob, std::uint64_t request_id)
{
%s

return static_cast<int>(id);
}
"""


def fenced(language):
    blocks = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", GUIDE, re.M | re.S)
    assert blocks, f"no {language} in the guide"
    return "".join(body for _, body in blocks)


def on_one_line(text):
    """Rust, where what varies in a sentence is an ellipsis, and a sentence is on one line."""
    text = re.sub(r"\\\n\s*", "", text)
    return re.sub(r"(\{[a-zA-Z_0-9.]*(:[^{}\"]*)?\})+", "…", text)


def sources():
    """All of src."""
    text = ""
    for path in sorted((ROOT / "src").rglob("*.rs")):
        text += path.read_text() + "\n"
    # Sentences that are put together of constants.
    constants = r'^(?:pub(?:\(super\))? )?const ([A-Z_]+): &str =\s*"((?:[^"\\]|\\.)*)";'
    for name, value in re.findall(constants, text, re.M):
        text = text.replace("{%s}" % name, value)
    return on_one_line(text).replace('\\"', '"')


def quoted():
    """In tables, whatever reads as a sentence: several words in backticks."""
    for line in GUIDE.splitlines():
        if not line.startswith("|"):
            continue
        for code in re.findall(r"`([^`]+)`", line):
            if len(code.split()) >= 4 and not code.startswith(("--", "nixl_agent(", "transfer(")):
                yield code
    # And one outside of tables.
    for code in re.findall(r"\n`(region_fd [^`]+)`", GUIDE):
        yield code


def sentences():
    text, count = sources(), 0
    missing = []
    for sentence in quoted():
        count += 1
        # One that ends so stands for several that begin alike.
        if sentence.removesuffix(" …") not in text:
            missing.append(sentence)
    for sentence in missing:
        print(f"no source says: {sentence}")
    assert not missing and count >= 35, f"{len(missing)} of {count} sentences are not the library's"
    print(f"{count} sentences are the library's")


# Where it is found out that a peer cannot be added, and why.
OF_ADDING = [
    "descriptor",
    "handshake",
    "backend/local/foreign",
    "backend/local/gate",
    "backend/local/identity",
    "backend/local/metadata",
    "backend/local/peer",
    "backend/local/process_vm",
    "backend/local/reach",
    "backend/nixl/coverage",
    "backend/nixl/metadata",
    "backend/nixl/mod",
]
# Said by one of them, but when a transport is made, given a descriptor, or at work.
NOT_OF_ADDING = [
    "agent_name …",
    "no memory …",
    "no random numbers for the transport's identity: …",
    "num_blocks is …",
    "the peer's memory is not mapped in process …",
    "… does not tell the start time of this process",
]


def complete():
    """Whatever is said when a peer is added, the guide has it."""
    known = [
        # At the beginning of a sentence, or all of it.
        re.compile(re.escape(sentence).replace("…", ".*"))
        for sentence in [*re.findall(r"`([^`\n]+)`", GUIDE.split("## Containers")[1]), *NOT_OF_ADDING]
        if len(sentence.split()) >= 2
    ]
    said = r'(?:fail!\(|Error::new\()\s*(?:Status::)?(\w+),\s*(?:format!\(\s*)?"((?:[^"\\]|\\.)*)"'
    count, missing = 0, []
    for name in OF_ADDING:
        text = (ROOT / f"src/{name}.rs").read_text().split("#[cfg(test)]\nmod")[0]
        for status, sentence in re.findall(said, on_one_line(text)):
            count += 1
            sentence = sentence.replace('\\"', '"')
            if status != "Internal" and not any(one.match(sentence) for one in known):
                missing.append(sentence)
    for sentence in missing:
        print(f"the guide does not have: {sentence}")
    assert not missing and count >= 60, f"{len(missing)} of {count} sentences are not in the guide"
    print(f"{count} sentences about peers are in the guide")


def names():
    header = (ROOT / "include/dt.h").read_text() + (ROOT / "src/backend/open.rs").read_text()
    header += (ROOT / "src/backend/nixl/library.rs").read_text() + (ROOT / "src/log.rs").read_text()
    unknown = {
        name
        for name in re.findall(r"\b(?:dt_[a-z_]+|DT_[A-Z_]+)\b", GUIDE)
        if not re.search(rf"\b{name}\b", header)
    }
    assert not unknown, f"there is no {', '.join(sorted(unknown))}"
    mooncake = GUIDE.split("## Coming from Mooncake")[1]
    assert "0.3.12.post1" in mooncake


def code(compilers):
    c_compiler, cpp_compiler = compilers
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT / 'include'}", "-fsyntax-only"]
    with tempfile.TemporaryDirectory() as folder:
        for compiler, name, text in (
            ([c_compiler, "-std=c11"], "guide.c", C_PRELUDE % (PRELUDE, fenced("c"))),
            ([cpp_compiler, "-std=c++17"], "guide.cpp", CPP_PRELUDE % fenced("cpp")),
        ):
            path = pathlib.Path(folder) / name
            path.write_text(text)
            subprocess.run([*compiler, *warnings, str(path)], check=True)


def links():
    headings = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", GUIDE, re.M)
    }
    for target in re.findall(r"\]\(([^)]+)\)", GUIDE):
        if target.startswith("#"):
            assert target[1:] in headings, f"no heading for {target}"
        else:
            assert (ROOT / "docs" / target).exists(), f"there is no {target}"


if __name__ == "__main__":
    sentences()
    complete()
    names()
    links()
    code(sys.argv[1:])
