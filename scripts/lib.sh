# For the scripts beside it: what they need is there, or is installed; and the build.
#
# Debian's and Ubuntu's packages are installed with apt-get, Rust with rustup. Nothing is downloaded
# when nothing is missing.

say() { printf '\n== %s\n' "$*"; }

die() { printf '%s\n' "$*" >&2; exit 1; }

# Prints what is missing from the tools named, as packages.
missing_packages() {
    local tool
    for tool in "$@"; do
        command -v "$tool" > /dev/null && continue
        case $tool in
            cc) echo gcc libc6-dev ;;
            c++) echo g++ ;;
            nm) echo binutils ;;
            python3) echo python3-minimal ;;
            *) echo "$tool" ;;
        esac
    done
}

install_packages() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    [ ${#as_root[@]} -eq 0 ] || command -v sudo > /dev/null ||
        die "missing: $*; install them, or run this as root"
    command -v apt-get > /dev/null || die "missing: $*; install them (this system has no apt-get)"
    say "installing $*"
    # When only one of many sources cannot be reached, the package may be there all the same.
    "${as_root[@]}" apt-get update -qq > /dev/null ||
        printf '%s\n' "apt-get update has failed; the package lists may be old" >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" > /dev/null ||
        die "missing: $*; apt-get could not install them, so do it in another way, then try again"
}

# need_tools TOOL...: installs what is missing.
need_tools() {
    local packages
    packages=$(missing_packages "$@")
    if [ -n "$packages" ]; then
        # shellcheck disable=SC2086 # one word for each package
        install_packages $packages
        hash -r
        packages=$(missing_packages "$@")
        [ -z "$packages" ] ||
            die "apt-get has installed ${packages//$'\n'/ }, but what comes with it is not in the PATH"
    fi
    case " $* " in
        *" cmake "*) need_cmake_version ;;
    esac
}

# is_at_least WANTED HAVE: compares two versions.
is_at_least() {
    [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

need_cmake_version() {
    local wanted have
    wanted=$(sed -n 's/^cmake_minimum_required(VERSION \(.*\))/\1/p' examples/CMakeLists.txt)
    have=$(cmake --version | sed -n '1s/^cmake version //p')
    is_at_least "$wanted" "$have" ||
        die "cmake $have ($(command -v cmake)) is too old, $wanted is needed"
}

# need_rust [COMPONENT...]: cargo, of the version that Cargo.toml asks for, and these components.
need_rust() {
    local component wanted have
    [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    if ! command -v cargo > /dev/null; then
        need_tools curl
        [ -f /etc/ssl/certs/ca-certificates.crt ] || install_packages ca-certificates
        say "installing Rust with rustup, for this user"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
            sh -s -- -y -q --profile minimal > /dev/null ||
            die "rustup could not install Rust; install it in another way, then try again"
        . "$HOME/.cargo/env"
    fi
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    have=$(cargo --version | cut -d ' ' -f 2)
    is_at_least "$wanted" "$have" ||
        die "Rust $have is too old, $wanted is needed: rustup update stable"
    for component in "$@"; do
        cargo "$component" --version > /dev/null 2>&1 && continue
        command -v rustup > /dev/null || die "cargo $component is missing, and there is no rustup"
        case $component in
            fmt) component=rustfmt ;;
        esac
        say "installing $component"
        rustup component add "$component" > /dev/null ||
            die "rustup could not install $component; install it in another way, then try again"
    done
}

# need_libclang: the build of nixl-sys reads NIXL's C header with it.
need_libclang() {
    local found
    [ -n "${LIBCLANG_PATH:-}" ] && return
    found=$(find /usr/lib/llvm-*/lib /usr/lib/*-linux-gnu /usr/lib64 -maxdepth 1 \
        -name 'libclang*.so*' ! -name 'libclang-cpp*' 2> /dev/null | head -n 1)
    [ -n "$found" ] || install_packages libclang-dev
}

# Where NIXL's libraries are after need_nixl, from the root of the repository.
nixl_lib_dir=third_party/nixl/.nixl_cu12.mesonpy.libs

# need_nixl: NIXL's wheel, in third_party/.
need_nixl() {
    if [ ! -f third_party/nixl/.pinned ] || [ ! -f third_party/python/.pinned ]; then
        python3 -m pip --version > /dev/null 2>&1 || install_packages python3-pip
        say "fetching NIXL from PyPI into third_party/"
    fi
    sh scripts/nixl.sh > /dev/null || die "NIXL could not be fetched: see above"
}

# need_vllm: what the Python package is tested with of vLLM, in third_party/.
need_vllm() {
    if [ ! -f third_party/vllm/.pinned ]; then
        python3 -m pip --version > /dev/null 2>&1 || install_packages python3-pip
        say "fetching a few files of vLLM from PyPI into third_party/ (320 MiB are read)"
    fi
    sh scripts/vllm.sh > /dev/null || die "vLLM could not be fetched: see above"
}

# build_library: target/release/libdatatransport.so
build_library() {
    cargo build --release --locked
}

# build_programs SOURCE FOLDER [OPTION...]: a CMake project, against that library.
build_programs() {
    local source=$1 folder=$2
    shift 2
    cmake -S "$source" -B "$folder" -DDT_LIBRARY="$PWD/target/release/libdatatransport.so" \
        -DDT_INCLUDE_DIR="$PWD/include" "$@" > /dev/null
    cmake --build "$folder" --parallel "$(nproc)" -- --no-print-directory
}
