#!/usr/bin/env python3
"""abi.py check|renew LIBRARY [--break]: what programs that are compiled already expect of the library.

`check` compares dt.h and the shared object with baseline.txt: functions and their prototypes, the layout of
structs, values of enums and macros, types, SONAME. It says what has changed, and whether a program that was
compiled with the baseline's header still works. `renew` writes the baseline anew; what breaks programs it
refuses, unless the SONAME is another one, or --break says that no release has the old interface.

abidiff would need types in the debug information of the shared object; there they are Rust's, in which an enum
of the header is an integer, and neither macros nor values are. clang says all of it about the header, which is
generated from the library's source.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parent.parent / "include" / "dt.h"
BASELINE = HERE / "baseline.txt"
# Of one layout on all of them.
MACHINES = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
# Other in each version; that they are right, other tests say.
VERSIONS = re.compile(r"DT_H$|DT_VERSION_|DT_ABI_VERSION$")
# Only what is compiled next sees it, with the header that it fits.
SOURCE_ONLY = {"macro DT_OPTIONS_INIT"}


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} has failed: {done.stderr.strip()}")
    return done.stdout


def clang(machine, source, *options):
    # Freestanding: the headers of the C library for another machine need not be there.
    return run("clang", f"--target={machine}", "-ffreestanding", "-std=c11", f"-I{source.parent}", *options, source)


def layouts(machine, header, structs):
    """{name: (size, alignment, [offset of each field])} in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        uses = pathlib.Path(folder) / "uses.c"
        uses.write_text(f'#include "{header}"\n' + "".join(f"char {name}_size[sizeof({name})];\n" for name in structs))
        text = clang(machine, uses, "-fsyntax-only", "-Xclang", "-fdump-record-layouts-simple")
    found = {}
    for part in text.split("*** Dumping AST Record Layout")[1:]:
        name = re.search(r"Type: (?:struct )?(\w+)", part).group(1)
        size, alignment = (int(re.search(rf"\b{what}:(\d+)", part).group(1)) // 8 for what in ("Size", "Alignment"))
        offsets = [int(bit) // 8 for bit in re.search(r"FieldOffsets: \[([\d, ]*)\]", part).group(1).split(",")]
        found[name] = (size, alignment, offsets)
    return found


def facts_of_header(header, machine):
    """{"kind name": "what it is"}, in the order of the header."""
    facts = {}
    tree = json.loads(clang(machine, header, "-fsyntax-only", "-Xclang", "-ast-dump=json"))
    fields = {}
    for node in tree["inner"]:
        name = node.get("name", "")
        if not name.startswith("dt_"):
            continue
        inner = node.get("inner", [])
        if node["kind"] == "FunctionDecl":
            facts[f"function {name}"] = node["type"]["qualType"]
        elif node["kind"] == "TypedefDecl":
            facts[f"type {name}"] = node["type"]["qualType"]
        elif node["kind"] == "EnumDecl":
            for value in inner:
                if value["kind"] == "EnumConstantDecl":
                    constant = next(one for one in value["inner"] if one["kind"] == "ConstantExpr")
                    facts[f"value {name}.{value['name']}"] = constant["value"]
        elif node["kind"] == "RecordDecl" and node.get("completeDefinition"):
            fields[name] = [(one["name"], one["type"]["qualType"]) for one in inner if one["kind"] == "FieldDecl"]
    for name, (size, alignment, offsets) in layouts(machine, header, fields).items():
        facts[f"struct {name}"] = f"{size} bytes, aligned to {alignment}"
        for (field, kind), offset in zip(fields[name], offsets):
            facts[f"field {name}.{field}"] = f"at {offset}, {kind}"
    for name, text in re.findall(r"^#define (DT_\w+) ?(.*)$", clang(machine, header, "-dM", "-E"), re.MULTILINE):
        if not VERSIONS.match(name):
            facts[f"macro {name}"] = text
    return facts


def facts_of(header, library):
    """Those of header and library, which have to agree."""
    facts = facts_of_header(header, MACHINES[0])
    for machine in MACHINES[1:]:
        for change in compare(facts, facts_of_header(header, machine)):
            sys.exit(f"{header} on {machine}, compared with {MACHINES[0]}: {change[1]}")
    soname = re.search(r"\(SONAME\).*\[(.*)\]", run("readelf", "-dW", library))
    facts["library SONAME"] = soname.group(1) if soname else "none"
    exported = {line.split()[0] for line in run("nm", "-D", "--defined-only", "-P", library).splitlines()}
    declared = {key.split()[1] for key in facts if key.startswith("function ")}
    for name in sorted(exported - declared):
        sys.exit(f"{library} exports {name}, which {header} does not declare")
    for name in sorted(declared - exported):
        sys.exit(f"{header} declares {name}, which {library} does not export")
    return facts


def size_of(struct):
    return int(struct.split()[0])


def verdict(key, old, new):
    """(whether it breaks programs, what has changed) for one fact that is another one now."""
    kind, name = key.split(" ", 1)
    before, after = old.get(key), new.get(key)
    if kind == "field" and before is None:
        struct = name.split(".")[0]
        if f"struct {struct}" not in old:
            return False, f"{key} is new: {after}"
        end = size_of(old[f"struct {struct}"])
        if not may_grow(struct, old):
            return True, f"{key} is new ({after}), in a struct that must not grow"
        if int(re.match(r"at (\d+)", after).group(1)) < end:
            return True, f"{key} is new ({after}), but older programs have other bytes there: {struct} had {end}"
        return False, f"{key} is new: {after}"
    if kind == "struct" and before and after and may_grow(name, old):
        if size_of(after) > size_of(before) and after.split(",")[1] == before.split(",")[1]:
            return False, f"{key} has grown, as structs with struct_size may: it had {before}, and has {after}"
    if before is None:
        return False, f"{key} is new: {after}"
    if after is None:
        return True, f"{key} is gone: {before}"
    # A new SONAME breaks nothing by itself: old programs do not find the library, or find the old one.
    return key not in SOURCE_ONLY and kind != "library", f"{key} was {before}, and is {after}"


def may_grow(struct, facts):
    return facts.get(f"field {struct}.struct_size", "").startswith("at 0,")


def compare(old, new):
    """Each change, as (whether it breaks programs, what has changed)."""
    return [verdict(key, old, new) for key in {**old, **new} if old.get(key) != new.get(key)]


def read_baseline(path):
    return dict(line.split(": ", 1) for line in path.read_text().splitlines() if not line.startswith("#"))


def main():
    arguments = [one for one in sys.argv[1:] if one != "--break"]
    if len(arguments) != 2 or arguments[0] not in ("check", "renew"):
        sys.exit(__doc__.splitlines()[0])
    what, library = arguments
    new = facts_of(HEADER, library)
    old = read_baseline(BASELINE) if BASELINE.exists() else {}
    changes = compare(old, new)
    for breaks, text in changes if old else []:
        print(f"{'BREAKS    ' if breaks else 'compatible'}  {text}")
    breaking = any(breaks for breaks, _ in changes) and old.get("library SONAME") == new["library SONAME"]
    this = os.path.relpath(__file__)
    if what == "renew":
        if breaking and "--break" not in sys.argv:
            sys.exit("Not renewed: programs that exist break, and the SONAME is the same. See --break.")
        BASELINE.write_text("# What compiled programs expect. Made by `abi.py renew`; do not edit.\n"
                            + "".join(f"{key}: {value}\n" for key, value in new.items()))
    elif breaking:
        sys.exit("Programs that were compiled before would BREAK. Take it back, or raise the major version, and with "
                 f"it the SONAME. As long as no release has the old interface: {this} renew --break {library}")
    elif changes:
        sys.exit("Programs that were compiled before still work. It belongs into the CHANGELOG, a new minor version, "
                 f"and the baseline: {this} renew {library}")
    else:
        print(f"{len(new)} facts as before")


if __name__ == "__main__":
    main()
