// dt.hpp over real transports: owners, push, pull, messages, errors. Nothing here needs exceptions:
// CMakeLists.txt builds it with them and without.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "backend.h"
#include "dt.hpp"
#include "dt_check.h"
#include "pattern.h"

namespace {

using namespace std::chrono_literals;
constexpr std::size_t num_blocks = 8;
constexpr std::size_t block_len = 256;
constexpr auto bound = 60s;

std::atomic<std::size_t> allocations{0};
std::vector<std::uint32_t> closes; // how long each dt_close of this program may take

} // namespace

// The program's own, and those that the header makes for it.
void *operator new(std::size_t size)
{
    ++allocations;
    void *const at = std::malloc(size);
    CHECK(at != nullptr);
    return at;
}
void operator delete(void *at) noexcept { std::free(at); }
void operator delete(void *at, std::size_t) noexcept { std::free(at); }

// In the way of the library's own, which does the work.
extern "C" dt_status dt_close(dt_transport *t, std::uint32_t timeout_ms)
{
    static const auto own = reinterpret_cast<decltype(&dt_close)>(dlsym(RTLD_NEXT, "dt_close"));
    CHECK(own != nullptr);
    closes.push_back(timeout_ms);
    return own(t, timeout_ms);
}

namespace {

dt::options options(const char *name = "")
{
    dt::options how;
    how.backend = static_cast<dt::backend>(test_backend());
    how.agent_name = name;
    return how;
}

// Fails the test with the library's sentence.
template <class T> T must(dt::result<T> r)
{
    if (!r)
        std::fprintf(stderr, "%s: %s\n", dt::to_string(r.code()), r.text().c_str());
    CHECK(r.ok());
    if constexpr (!std::is_void_v<T>)
        return *std::move(r);
}

dt::transport open(const char *name = "")
{
    return must(dt::transport::create(must(dt::region::alloc(num_blocks * block_len)), num_blocks,
                                      block_len, options(name)));
}

void fill(dt::transport &t, std::uint64_t seed)
{
    for (std::size_t i = 0; i < num_blocks; ++i)
        pattern_fill(t.block(i).data(), block_len, seed, i);
}

bool holds(dt::transport &t, std::size_t block, std::uint64_t seed, std::uint64_t of)
{
    return pattern_mismatch(t.block(block).data(), block_len, {seed, of}) == -1;
}

// Two that drive each other: over sockets nothing comes to a side that does not poll.
struct two {
    dt::transport a = open("a"), b = open("b");

    two()
    {
        fill(a, 1);
        fill(b, 2);
        must(a.import_handshake("b", must(b.export_handshake())));
    }
    template <class Done> void until(Done is_done)
    {
        const auto end = std::chrono::steady_clock::now() + bound;
        while (!is_done()) {
            CHECK(std::chrono::steady_clock::now() < end);
            must(b.poll({}));
            must(a.wait({}, 1ms));
        }
    }
    dt::completion finish()
    {
        std::array<dt::completion, 4> buf;
        std::size_t n = 0;
        until([&] {
            n = must(a.poll(buf, "b")).size();
            return n > 0;
        });
        CHECK(n == 1);
        return buf[0];
    }
};

void owners()
{
    dt::region memory = must(dt::region::alloc(num_blocks * block_len));
    void *const base = memory.data();
    {
        // Over memory of the caller's, which stays the caller's.
        dt::transport t = must(dt::transport::create(memory, num_blocks, block_len, options("t")));
        CHECK(t && t.block(0).data() == base && t.block(7).size() == block_len);
        CHECK(t.base_addr() == reinterpret_cast<std::uintptr_t>(base));
        CHECK(t.num_blocks() == num_blocks && t.block_len() == block_len);
        CHECK(t.agent_name() == "t" && t.config_fingerprint().empty());
        CHECK(t.backend_kind() == static_cast<dt::backend>(test_backend()));

        dt_transport *const handle = t.native();
        dt::transport u = std::move(t);
        CHECK(!t && u.native() == handle && u.agent_name() == "t");
        // What was moved from refuses, as NULL does, and does not crash.
        CHECK(t.close(0ms).code() == dt::status::invalid_arg && t.num_blocks() == 0);
        CHECK(t.write_blocks("p", {0}, {0}).text() == dt_last_error());
        t = std::move(u);
        CHECK(t && !u);
        must(t.close(60s));
        must(t.close(0ms));
        CHECK(t.poll({}).code() == dt::status::closed);
        CHECK(must(t.get_stats()).submitted == 0);
    }
    CHECK(memory.data() == base);
    memory.memory()[0] = std::byte{1};

    // Over any memory, and with a handle that C has made.
    std::vector<unsigned char> heap(num_blocks * block_len);
    dt_options plain = test_options();
    dt_transport *handle = nullptr;
    CHECK_OK(dt_create(heap.data(), num_blocks, block_len, &plain, &handle));
    dt::transport adopted = dt::transport::adopt(handle);
    CHECK(adopted.block(0).data() == static_cast<void *>(heap.data()));
    must(dt::transport::create(heap.data(), num_blocks, block_len, options()));
    // Given away, it stays open; memory of the caller's is not its matter.
    auto [again, none] = adopted.release();
    CHECK(again == handle && none.data() == nullptr && !adopted && adopted.native() == nullptr);
    CHECK(dt_num_blocks(handle) == num_blocks && adopted.release().handle == nullptr);
    dt_destroy(again);

    const auto large = dt::transport::create(memory, num_blocks + 1, block_len, options());
    CHECK(large.code() == dt::status::invalid_arg);
    CHECK(large.text() == "9 blocks of 256 bytes are more than the region's 2048");
    dt::options nul = options();
    nul.agent_name = std::string("a\0b", 3);
    CHECK(dt::transport::create(memory, 1, 1, nul).code() == dt::status::invalid_arg);
    CHECK(dt::transport::create(nullptr, 1, 1).text() == dt_last_error());
}

/* Asks what was freed, which the library answers by 0 and a sanitizer by an end. */
bool is_freed(const dt_transport *handle)
{
#ifdef DT_SANITIZED
    return handle != nullptr;
#else
    return dt_num_blocks(handle) == 0;
#endif
}

// A handle and its memory go through the hands of C, and come back into those of an owner.
void release()
{
    dt::transport b = open();
    fill(b, 3);
    dt::transport a = open();
    must(a.import_handshake("b", must(b.export_handshake())));
    dt_transport *const handle = b.native();
    void *const base = b.block(0).data();
    auto away = b.release();
    CHECK(away.handle == handle && away.memory.data() == base && !b);
    b = dt::transport(); // owns neither any more
    CHECK(dt_num_blocks(away.handle) == num_blocks);
    closes.clear();
    {
        const dt::transport c =
            dt::transport::adopt(away.handle, std::move(away.memory), 4321ms);
        CHECK(c.native() == handle && away.memory.data() == nullptr);
        must(a.read_blocks("b", {5}, {6}));
        std::array<dt::completion, 1> done;
        const auto end = std::chrono::steady_clock::now() + bound;
        std::size_t polls = 0;
        while (must(a.wait(done, 1ms)).empty()) {
            CHECK(std::chrono::steady_clock::now() < end);
            std::size_t count = 0;
            CHECK_OK(dt_poll(c.native(), nullptr, nullptr, 0, &count));
            ++polls;
        }
        CHECK(dt::outcome(done[0]) == dt::status::ok && holds(a, 5, 3, 6));
        CHECK(must(c.get_stats()).polls == polls && c.peer_status("a").code() == dt::status::not_found);
    }
    CHECK((closes == std::vector<std::uint32_t>{4321}) && is_freed(handle));
}

// The destructor ends what is there: the handle is freed, and a peer cannot reach the memory any more.
void destructor()
{
    dt::transport a = open();
    const dt_transport *handle = nullptr;
    {
        dt::transport b = open();
        must(a.import_handshake("b", must(b.export_handshake())));
        handle = b.native();
        b = open(); // the same by assignment
        CHECK(b.num_blocks() == num_blocks && (b.native() == handle || is_freed(handle)));
        handle = b.native();
    }
    CHECK(is_freed(handle));
    // By force only what has not let go in time.
    dt::options how = options();
    how.close_timeout = 1234ms;
    closes.clear();
    {
        dt::transport c = must(dt::transport::create(dt::region::alloc(1).value(), 1, 1, how));
        dt::transport d = std::move(c);
        must(d.close(40000000000ms)); // more than C can say
    }
    CHECK((closes == std::vector<std::uint32_t>{0xffffffff, 1234}));
    if (!on_nixl()) {
        must(a.poll({}));
        CHECK(a.peer_status("b").code() == dt::status::peer_lost);
    }
}

// What it closes is closed in good order: messages that were sent still come, also to a receiver that
// asks for them late.
void last_words()
{
    dt::transport a = open("a"), b = open("b");
    must(b.import_handshake("a", must(a.export_handshake())));
    std::vector<std::string> got;
    const auto take = [&] {
        for (auto &m : must(a.get_messages()))
            got.push_back(std::move(m.body));
        return must(a.get_stats()).notifs_received;
    };
    // Over NIXL the connection is made first, for which both poll.
    const auto end = std::chrono::steady_clock::now() + bound;
    while (!b.send_notif("a", "first")) {
        CHECK(std::chrono::steady_clock::now() < end);
        must(b.poll({}));
        take();
    }
    while (take() == 0)
        must(b.poll({}));
    std::atomic<std::size_t> sent{0};
    std::thread sender([&b, &sent] {
        const std::string large(16000, 'x');
        std::size_t count = 1;
        while (count < 40 && b.send_notif("a", large)) // not until there is no room
            ++count;
        sent = count;
        b = dt::transport();
    });
    while (sent == 0)
        std::this_thread::yield();
    while (got.size() < sent) {
        CHECK(std::chrono::steady_clock::now() < end);
        take();
    }
    sender.join();
    CHECK(got.size() > 1 && got.front() == "first" && got.back().size() == 16000);
}

void push(two &pair)
{
    const std::vector<std::uint32_t> from{1, 7};
    const std::uint32_t to[] = {4, 5};
    const dt::xfer_id id = must(pair.a.write_blocks("b", from, to, 42));
    const dt::completion c = pair.finish();
    CHECK(c.id == id && c.user_data == 42 && c.bytes == 2 * block_len);
    CHECK(dt::outcome(c) == dt::status::ok);
    CHECK(holds(pair.b, 4, 1, 1) && holds(pair.b, 5, 1, 7) && holds(pair.b, 6, 2, 6));

    must(pair.a.read_blocks("b", {0, 2}, {4, 6}));
    CHECK(dt::outcome(pair.finish()) == dt::status::ok);
    CHECK(holds(pair.a, 0, 1, 1) && holds(pair.a, 2, 2, 6) && holds(pair.a, 3, 1, 3));

    // The two others that report.
    must(pair.a.write_blocks("b", {1}, {0}, 43));
    std::vector<dt::completion> some;
    std::array<dt::completion, 2> buf;
    pair.until([&] {
        CHECK(must(pair.a.poll(buf, "nobody")).empty());
        CHECK(must(pair.a.wait(buf, 1ms, "nobody")).empty());
        some = must(pair.a.poll_some());
        return !some.empty();
    });
    CHECK(some.size() == 1 && some[0].user_data == 43);
    must(pair.a.write_blocks("b", {1}, {0}, 44));
    std::uint64_t last = 0;
    pair.until([&] {
        for (const dt::completion &done : *pair.a.wait(buf, 1ms, "b"))
            last = done.user_data;
        return last != 0;
    });
    CHECK(last == 44);
    CHECK(must(pair.a.get_stats()).bytes_written == 4 * block_len);
}

void hot_path(two &pair)
{
    if (on_nixl())
        return; // its library is C++, too, and allocates by the program's operator
    std::array<dt::completion, 4> buf;
    const std::size_t before = allocations;
    const auto id = pair.a.write_blocks("b", {0, 1, 2}, {0, 1, 2});
    const auto done = pair.a.wait(buf, 60s, "b");
    const bool fine = id && done && done->size() == 1 && pair.a.poll(buf);
    const std::size_t after = allocations;
    CHECK(fine && after == before);
}

void pull()
{
    dt::transport encoder = open("encoder"), model = open("model");
    fill(encoder, 3);
    const std::string name = must(
        model.add_remote_agent(must(encoder.agent_metadata()), must(encoder.mem_descriptor())));
    CHECK(name == "encoder");
    const dt::xfer_id id = must(model.post_read(name, {0, 1}, {6, 7}, "image 7"));
    const dt::xfer_id silent = must(model.post_read(name, {2}, {5}));
    dt::xfer_state states[] = {dt::xfer_state::in_progress, dt::xfer_state::in_progress};
    std::vector<dt::message> mail;
    const auto end = std::chrono::steady_clock::now() + bound;
    while (mail.empty() || states[0] == dt::xfer_state::in_progress ||
           states[1] == dt::xfer_state::in_progress) {
        CHECK(std::chrono::steady_clock::now() < end);
        states[0] = must(model.check_xfer_state(id));
        states[1] = must(model.check_xfer_state(silent));
        for (auto &m : must(encoder.get_messages()))
            mail.push_back(std::move(m));
    }
    CHECK(states[0] == dt::xfer_state::done && states[1] == dt::xfer_state::done);
    CHECK(mail.size() == 1 && mail[0].agent_name == "model" && mail[0].body == "image 7");
    CHECK(holds(model, 0, 3, 6) && holds(model, 1, 3, 7) && holds(model, 2, 3, 5));
    must(model.release_xfer(id));
    CHECK(model.check_xfer_state(id).code() == dt::status::not_found);
    must(model.remove_remote_peer(name));
    CHECK(model.peer_status(name).code() == dt::status::not_found);
}

// Into buffers of the caller's, and into memory of their own when they are long and many.
void messages(two &pair)
{
    const std::string odd("a\0b", 3);
    std::string large(10000, '\0');
    pattern_fill(&large[0], large.size(), 5, 0);
    const auto send = [&](dt::bytes body) {
        pair.until([&] {
            const auto sent = pair.a.send_notif("b", body);
            CHECK(sent || sent.code() == dt::status::busy);
            return sent.ok();
        });
    };
    send(odd);
    dt::notif buf[4];
    std::array<std::byte, 4096> arena;
    std::vector<std::string> got;
    pair.until([&] {
        // Too small for any message: it stays, and the call says what it needs.
        std::size_t needed = 0;
        const auto none = pair.b.get_new_notifs(buf, {arena.data(), 2}, &needed);
        if (none) {
            CHECK(none->empty());
            return false;
        }
        CHECK(none.code() == dt::status::buffer_too_small && needed == std::strlen("a") + 1 + 3);
        for (const dt::notif &n : must(pair.b.get_new_notifs(buf, arena)))
            got.emplace_back(dt::body(n));
        return true;
    });
    CHECK(got.size() == 1 && got[0] == odd);

    for (int i = 0; i < 20; ++i)
        send(i == 3 ? large : std::to_string(i));
    got.clear();
    pair.until([&] {
        for (const dt::message &m : must(pair.b.get_messages(3))) {
            CHECK(m.agent_name == "a");
            got.push_back(m.body);
        }
        return got.size() >= 20;
    });
    CHECK(got.size() == 20 && got[2] == "2" && got[3] == large && got[19] == "19");
}

void cancels(two &pair)
{
    std::vector<dt::xfer_id> ids{must(pair.a.write_blocks("b", {0}, {0}))};
    const auto small = pair.a.cancel(ids, dt::cancel_mode::wait, {});
    CHECK(small.code() == dt::status::buffer_too_small && !small.text().empty());
    const auto still = must(pair.a.cancel(ids, dt::cancel_mode::wait, ids));
    for (dt::xfer_id id : still) {
        CHECK(id == ids[0]);
        pair.finish();
    }
    must(pair.a.cancel({must(pair.a.write_blocks("b", {0}, {0})), 12345}));
    must(pair.a.cancel({}));
    pair.until([&] { return must(pair.a.get_stats()).draining == 0; });
    CHECK(must(pair.a.poll_some()).empty());
}

void errors(two &pair)
{
    auto &a = pair.a;
    auto r = a.write_blocks("nobody", {0}, {0});
    CHECK(r.code() == dt::status::not_found && r.text() == dt_last_error());
    const std::string text = r.text();
    CHECK(a.write_blocks("b", {99}, {0}).code() == dt::status::out_of_range);
    CHECK(r.text() == text && r.text() != dt_last_error()); // it is a copy
    CHECK(a.write_blocks("b", {0, 1}, {0}).text() ==
          "local_idxs has 2 indexes, but remote_idxs has 1");
    CHECK(a.post_read("b", {0}, {}).code() == dt::status::invalid_arg);
    CHECK(a.write_blocks("b", {}, {}).code() == dt::status::invalid_arg);

    // Names: what is behind a NUL is not overlooked, and the longest is not cut.
    CHECK(a.write_blocks({"b\0c", 3}, {0}, {0}).code() == dt::status::invalid_arg);
    CHECK(a.poll({}, {"b\0c", 3}).code() == dt::status::invalid_arg);
    CHECK(a.peer_status(std::string(1000, 'x')).code() == dt::status::not_found);
    const auto longer = a.peer_status(std::string(1001, 'x'));
    CHECK(longer.code() == dt::status::invalid_arg &&
          longer.text().find("1001 bytes") != std::string::npos);
    CHECK(a.peer_status("").code() == dt::status::invalid_arg);
    const std::string_view part("b and more");
    must(a.peer_status(part.substr(0, 1)));

    auto blob = must(pair.b.export_handshake());
    blob.back() ^= std::byte{1};
    CHECK(a.import_handshake("c", blob).code() == dt::status::invalid_arg);
    CHECK(a.add_remote_agent("?", "?").code() == dt::status::invalid_arg);
    CHECK(a.add_remote_peer("c", must(pair.b.agent_metadata()), pair.b.base_addr(), num_blocks,
                            block_len / 2)
              .code() == dt::status::incompatible);

    // Waiting for nothing is no failure; neither is a time that cannot be.
    CHECK(must(a.wait({}, 1ms)).empty() && must(a.wait({}, -1h)).empty());
}

void log()
{
    const auto count = [](dt_log_level, const char *, void *n) { ++*static_cast<int *>(n); };
    int messages = 0;
    dt::set_log_callback(count, &messages, dt::log_level::info);
    open();
    CHECK(messages > 0);
    dt::set_log_callback(nullptr, nullptr, dt::log_level::off);
}

} // namespace

int main()
{
    owners();
    release();
    destructor();
    last_words();
    {
        two pair;
        push(pair);
        hot_path(pair);
        messages(pair);
        cancels(pair);
        errors(pair);
    }
    pull();
    log();
    return 0;
}
