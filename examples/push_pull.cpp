// Push and pull in C++17: a process that computes and one that generates, as prefill and decode do.
//
// The one that computes writes blocks into the memory of the other (push) and says so with a message.
// Then the other one reads more blocks (pull), and the message that goes with the read says that they
// are free. $DT_BACKEND chooses the backend: local or nixl.
#include <dt.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
constexpr std::size_t num_blocks = 64, block_len = 16384;

// value() throws what has failed, with the library's sentence.
dt::transport create(const char *name)
{
    dt::options options;
    options.agent_name = name + std::to_string(getpid()); // no two nodes may have one name
    options.config_json = R"({"model": "an example", "dtype": "bfloat16"})";
    return dt::transport::create(dt::region::alloc(num_blocks * block_len).value(), num_blocks,
                                 block_len, options)
        .value();
}

// The control plane is yours: here each sends its handshake over a socket, and takes the other's.
void meet(dt::transport &transport, const char *peer_id, int control)
{
    const dt::blob mine = transport.export_handshake().value();
    dt::blob theirs(65536);
    if (send(control, mine.data(), mine.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(mine.size()))
        throw std::runtime_error("the other process is gone");
    const ssize_t n = recv(control, theirs.data(), theirs.size(), 0);
    theirs.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    transport.import_handshake(peer_id, theirs).value(); // backend, model and block length must fit
}

// Calls `step` until it is true. An engine calls it from its scheduler's loop instead.
template <class Step> void until(const char *what, Step step)
{
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (!step())
        if (std::chrono::steady_clock::now() > end)
            throw std::runtime_error(std::string("this does not happen: ") + what);
}

void expect_message(dt::transport &transport, const std::string &body)
{
    until(body.c_str(), [&] {
        for (const dt::message &m : transport.get_messages().value()) {
            if (m.body != body)
                throw std::runtime_error("a message that makes no sense: " + m.body);
            return true;
        }
        return false;
    });
}

void compute(int control)
{
    dt::transport transport = create("prefill ");
    for (std::size_t i = 0; i < num_blocks; ++i)
        std::memset(transport.block(i).data(), static_cast<int>(i), block_len);
    meet(transport, "decode", control);

    const auto id = transport.write_blocks("decode", {0, 1, 2}, {10, 11, 12}).value();
    dt::completion done[8];
    until("the write ends", [&] {
        for (const dt::completion &c : transport.wait(done, 10ms).value()) {
            if (c.id != id || dt::outcome(c) != dt::status::ok)
                throw std::runtime_error(dt::to_string(dt::outcome(c)));
            return true;
        }
        return false;
    });
    until("the peer takes a message", [&] {
        const auto sent = transport.send_notif("decode", "prompt 1: written");
        if (sent.code() == dt::status::busy) // no room now, or no connection yet: poll, try again
            transport.poll({}).value();
        else
            sent.value();
        return sent.ok();
    });

    expect_message(transport, "image 7: read");
    std::printf("computes: image 7 was read, its blocks are free\n");
}

void generate(int control)
{
    dt::transport transport = create("decode ");
    const auto check = [&](std::size_t block, std::size_t from) {
        for (std::byte b : transport.block(block))
            if (b != static_cast<std::byte>(from))
                throw std::runtime_error("block " + std::to_string(block) + " holds other bytes");
    };
    meet(transport, "prefill", control);

    expect_message(transport, "prompt 1: written");
    for (std::size_t i = 0; i < 3; ++i)
        check(10 + i, i);
    std::printf("generates: prompt 1 is there\n");

    const auto id = transport.post_read("prefill", {20, 21}, {62, 63}, "image 7: read").value();
    dt::xfer_state state{};
    until("the read ends", [&] {
        state = transport.check_xfer_state(id).value();
        return state != dt::xfer_state::in_progress;
    });
    transport.release_xfer(id).value();
    if (state != dt::xfer_state::done)
        throw std::runtime_error(dt::to_string(state));
    check(20, 62);
    check(21, 63);
    std::printf("generates: image 7 is there\n");
} // its destructor closes the transport, then frees the memory

} // namespace

int main()
{
    int control[2], status = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, control) != 0)
        return 1;
    const pid_t child = fork(); // before any transport exists: they do not survive a fork
    close(control[child == 0 ? 0 : 1]);
    try {
        if (child == 0)
            compute(control[1]);
        else
            generate(control[0]);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s: %s\n", child == 0 ? "computes" : "generates", e.what());
        return 1;
    }
    if (child == 0)
        return 0;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
