/*
 * Copyright The libdatatransport authors.
 *
 * Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except
 * in compliance with the License. You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software distributed under the License
 * is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express
 * or implied. See the License for the specific language governing permissions and limitations under
 * the License.
 */

/** @file
 * libdatatransport for C++17 and newer: a thin layer over dt.h, in headers alone.
 *
 * What a function does, and what may be relied on, stands in dt.h at the function of the same name.
 * This layer adds owners (dt::transport, dt::region), views for lists (dt::span, dt::bytes), enum
 * classes, and results that carry the sentence of dt_last_error with them (dt::result). Nothing is
 * lost: transport::native gives the handle to the functions of C.
 *
 * No call throws by itself, but for std::bad_alloc; result::value does. So it may be compiled with
 * -fno-exceptions and -fno-rtti, also beside files that are not.
 *
 * Submitting, polling and waiting into the caller's buffers allocate nothing unless they fail.
 */
#ifndef DT_HPP
#define DT_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dt.h"
#include "dt/basics.hpp"
#include "dt/region.hpp"

namespace dt {

/** @cond of no use outside */
namespace detail {

inline std::uint32_t ms(std::chrono::milliseconds t) noexcept
{
    const auto n = t.count();
    return n <= 0 ? 0 : n >= 0xffffffff ? 0xffffffffu : static_cast<std::uint32_t>(n);
}

/* The names of C end with a NUL, views do not, and no call shall allocate for that. */
template <class Call> auto named(std::string_view name, Call call) -> decltype(call(""))
{
    char text[1001];
    if (name.size() >= sizeof text)
        return failure{status::invalid_arg, "the name of a peer has " +
                                                std::to_string(name.size()) +
                                                " bytes, but a name has 1 to 1000"};
    if (name.find('\0') != name.npos)
        return failure{status::invalid_arg, "the name of a peer has a NUL in it"};
    text[name.copy(text, name.size())] = '\0';
    return call(text);
}

/* A function that fills a buffer, asked for the size first. */
template <class Call> result<blob> filled(Call call)
{
    std::size_t len = 0;
    dt_status s = call(nullptr, 0, &len);
    blob all(s == DT_ERR_BUFFER_TOO_SMALL ? len : 0);
    if (!all.empty())
        s = call(all.data(), all.size(), &len);
    return with(s, std::move(all));
}

inline failure lists(std::size_t local, std::size_t remote)
{
    return {status::invalid_arg, "local_idxs has " + std::to_string(local) +
                                     " indexes, but remote_idxs has " + std::to_string(remote)};
}

} // namespace detail
/** @endcond */

/* ---- without a transport ---- */

/** See dt_version. */
[[nodiscard]] inline std::uint32_t version() noexcept { return ::dt_version(); }

/** See dt_compute_fingerprint; "" for an empty object. */
inline result<std::string> compute_fingerprint(std::string_view config_json)
{
    if (config_json.find('\0') != config_json.npos)
        return failure{status::invalid_arg, "config_json has a NUL in it"};
    char out[17] = "";
    const dt_status s = ::dt_compute_fingerprint(std::string(config_json).c_str(), out);
    return detail::with(s, std::string(out));
}

/** See dt_fingerprints_compatible. False as well if one of them has a NUL in it. */
[[nodiscard]] inline bool fingerprints_compatible(std::string_view a, std::string_view b)
{
    /* Copies, for C wants a NUL at the end, and a view has none. */
    return a.find('\0') == a.npos && b.find('\0') == b.npos &&
           ::dt_fingerprints_compatible(std::string(a).c_str(), std::string(b).c_str());
}

/** See dt_set_log_callback; fn must not throw. */
inline void set_log_callback(dt_log_fn fn, void *user, log_level max_level) noexcept
{
    ::dt_set_log_callback(fn, user, static_cast<dt_log_level>(max_level));
}

/** See dt_options, field by field. A text that is empty is not set. */
struct options {
    dt::backend backend = dt::backend::automatic; /**< What moves the bytes. */
    std::string agent_name;                       /**< "": generated. */
    std::string config_json;                      /**< "": no fingerprint. */
    std::string nixl_lib_dir;                     /**< "": DT_NIXL_LIB_DIR, or the loader's path. */
    std::string nixl_plugin;                      /**< "": UCX. */
    std::uint32_t nixl_num_threads = 0;           /**< Workers of the plugin. */
    bool progress_thread = false;                 /**< NIXL: has a thread of its own. */
    std::int32_t region_fd = -1;                  /**< Behind the region; -1: none. */
    std::uint64_t region_offset = 0;              /**< Of the region's base in region_fd. */
    std::uint32_t poll_budget_us = 0;             /**< Of one poll; 0: 500. */
    /** How long the destructor tries dt_close before it uses force. */
    std::chrono::milliseconds close_timeout{1000};
};

/** A message that has come, with memory of its own. */
struct message {
    std::string agent_name; /**< See dt_notif.agent_name: a claim. */
    std::string body;       /**< Any bytes. */
};

/** The bytes of a message that has come, where they are: in the arena. */
[[nodiscard]] inline std::string_view body(const notif &n) noexcept
{
    return {static_cast<const char *>(n.msg), n.msg_len};
}

/* ---- the transport ---- */

/** One end of the data plane, and its owner: see dt_transport. Each function does what the one of
 * dt.h does. One that was moved from refuses every call as dt.h refuses NULL.
 *
 * The destructor closes: it tries dt_close for options::close_timeout, so that peers can let go and
 * messages can arrive, then dt_destroy ends what is left by force. No other thread may be inside a
 * call then. Threads, forks and signals: see dt.h. */
class transport {
  public:
    /** See dt_create. The memory must outlive the transport, unless close has returned ok. */
    static result<transport> create(void *base, std::size_t num_blocks, std::size_t block_len,
                                    const options &how = {})
    {
        for (const auto *text :
             {&how.agent_name, &how.config_json, &how.nixl_lib_dir, &how.nixl_plugin})
            if (text->find('\0') != text->npos)
                return failure{status::invalid_arg, "an option has a NUL in its text"};
        const auto text = [](const std::string &s) { return s.empty() ? nullptr : s.c_str(); };
        dt_options o = DT_OPTIONS_INIT;
        o.backend = static_cast<dt_backend>(how.backend);
        o.agent_name = text(how.agent_name);
        o.config_json = text(how.config_json);
        o.nixl_lib_dir = text(how.nixl_lib_dir);
        o.nixl_plugin = text(how.nixl_plugin);
        o.nixl_num_threads = how.nixl_num_threads;
        o.progress_thread = how.progress_thread;
        o.region_has_fd = how.region_fd >= 0;
        o.region_fd = how.region_fd;
        o.region_offset = how.region_offset;
        o.poll_budget_us = how.poll_budget_us;
        transport t;
        const dt_status s = ::dt_create(base, num_blocks, block_len, &o, &t.handle_);
        t.close_timeout_ = how.close_timeout;
        return detail::with(s, std::move(t));
    }

    /** Over memory that is the caller's, and must outlive the transport. */
    static result<transport> create(const region &memory, std::size_t num_blocks,
                                    std::size_t block_len, options how = {})
    {
        if (block_len > 0 && num_blocks > memory.size() / block_len)
            return failure{status::invalid_arg, std::to_string(num_blocks) + " blocks of " +
                                                    std::to_string(block_len) +
                                                    " bytes are more than the region's " +
                                                    std::to_string(memory.size())};
        how.region_fd = memory.fd();
        how.region_offset = 0;
        return create(memory.data(), num_blocks, block_len, static_cast<const options &>(how));
    }

    /** Over memory that becomes the transport's, and is freed after it; where there is none in the
     * end, it stays the caller's. */
    static result<transport> create(region &&memory, std::size_t num_blocks, std::size_t block_len,
                                    options how = {})
    {
        auto t = create(static_cast<const region &>(memory), num_blocks, block_len, std::move(how));
        if (t)
            t->memory_.swap(memory);
        return t;
    }

    /** Takes over a handle of dt_create or release, and memory, if it is to be freed after it. */
    [[nodiscard]] static transport
    adopt(dt_transport *handle, region memory = {},
          std::chrono::milliseconds close_timeout = std::chrono::milliseconds(1000)) noexcept
    {
        transport t;
        t.handle_ = handle;
        t.close_timeout_ = close_timeout;
        t.memory_.swap(memory);
        return t;
    }

    /** What release gives. */
    struct released {
        /** For dt_close and dt_destroy, or adopt; NULL: there was none. */
        dt_transport *handle = nullptr;
        /** To be kept until dt_destroy; of nothing: it is the caller's. */
        region memory{};
    };
    /** Gives the handle away, and with it the memory, if that was the transport's. Leaves none. */
    [[nodiscard]] released release() noexcept
    {
        return {std::exchange(handle_, nullptr), std::move(memory_)};
    }

    transport() noexcept = default; /**< None. */
    transport(transport &&other) noexcept { swap(other); } /**< Leaves none there. */
    /** Ends what it had as the destructor does. */
    transport &operator=(transport &&other) noexcept
    {
        transport taken = std::move(other);
        swap(taken);
        return *this;
    }
    transport(const transport &) = delete;            /**< There is one owner. */
    transport &operator=(const transport &) = delete; /**< There is one owner. */
    /** Closes and frees. */
    ~transport()
    {
        if (handle_ != nullptr)
            ::dt_close(handle_, detail::ms(close_timeout_));
        ::dt_destroy(handle_);
    }

    /** See dt_close; the destructor still frees. */
    result<void> close(std::chrono::milliseconds timeout)
    {
        return detail::done(::dt_close(handle_, detail::ms(timeout)));
    }
    explicit operator bool() const noexcept { return handle_ != nullptr; } /**< Is there one? */
    /** For the functions of dt.h. */
    [[nodiscard]] dt_transport *native() const noexcept { return handle_; }
    /** Changes the two. */
    void swap(transport &other) noexcept
    {
        std::swap(handle_, other.handle_);
        std::swap(close_timeout_, other.close_timeout_);
        memory_.swap(other.memory_);
    }

    /** See dt_base_addr. */
    [[nodiscard]] std::uint64_t base_addr() const noexcept { return ::dt_base_addr(handle_); }
    /** See dt_num_blocks. */
    [[nodiscard]] std::size_t num_blocks() const noexcept { return ::dt_num_blocks(handle_); }
    /** See dt_block_len. */
    [[nodiscard]] std::size_t block_len() const noexcept { return ::dt_block_len(handle_); }
    /** See dt_config_fingerprint. */
    [[nodiscard]] std::string_view config_fingerprint() const noexcept
    {
        return ::dt_config_fingerprint(handle_);
    }
    /** See dt_agent_name. */
    [[nodiscard]] std::string_view agent_name() const noexcept { return ::dt_agent_name(handle_); }
    /** See dt_backend_kind. */
    [[nodiscard]] dt::backend backend_kind() const noexcept
    {
        return static_cast<dt::backend>(::dt_backend_kind(handle_));
    }
    /** The bytes of block i, which is below num_blocks. */
    [[nodiscard]] span<std::byte> block(std::size_t i) const noexcept
    {
        return {reinterpret_cast<std::byte *>(base_addr()) + i * block_len(), block_len()};
    }

    /* peers */

    /** See dt_export_handshake. */
    result<blob> export_handshake() const
    {
        return detail::filled([this](void *buf, std::size_t cap, std::size_t *len) {
            return ::dt_export_handshake(handle_, buf, cap, len);
        });
    }
    /** See dt_get_agent_metadata. */
    result<blob> agent_metadata() const
    {
        return detail::filled([this](void *buf, std::size_t cap, std::size_t *len) {
            return ::dt_get_agent_metadata(handle_, buf, cap, len);
        });
    }
    /** See dt_get_mem_descriptor. */
    result<blob> mem_descriptor() const
    {
        return detail::filled([this](void *buf, std::size_t cap, std::size_t *len) {
            return ::dt_get_mem_descriptor(handle_, buf, cap, len);
        });
    }
    /** See dt_import_handshake. */
    result<void> import_handshake(std::string_view peer_id, bytes handshake)
    {
        return detail::named(peer_id, [&](const char *id) {
            return detail::done(
                ::dt_import_handshake(handle_, id, handshake.data(), handshake.size()));
        });
    }
    /** See dt_add_remote_peer. */
    result<void> add_remote_peer(std::string_view peer_id, bytes metadata, std::uint64_t base_addr,
                                 std::size_t num_blocks, std::size_t block_len)
    {
        return detail::named(peer_id, [&](const char *id) {
            return detail::done(::dt_add_remote_peer(handle_, id, metadata.data(), metadata.size(),
                                                     base_addr, num_blocks, block_len));
        });
    }
    /** See dt_add_remote_agent; gives the name of the agent, which is its peer id. */
    result<std::string> add_remote_agent(bytes metadata, bytes mem_descriptor)
    {
        char name[1001] = "";
        std::size_t len = 0;
        const dt_status s =
            ::dt_add_remote_agent(handle_, metadata.data(), metadata.size(), mem_descriptor.data(),
                                  mem_descriptor.size(), name, sizeof name, &len);
        return detail::with(s, std::string(name));
    }
    /** See dt_remove_remote_peer. */
    result<void> remove_remote_peer(std::string_view peer_id)
    {
        return detail::named(peer_id, [this](const char *id) {
            return detail::done(::dt_remove_remote_peer(handle_, id));
        });
    }
    /** See dt_peer_status: ok for a healthy peer, or why it is none. */
    result<void> peer_status(std::string_view peer_id) const
    {
        return detail::named(peer_id, [this](const char *id) {
            return detail::done(::dt_peer_status(handle_, id));
        });
    }

    /* push */

    /** See dt_write_blocks: local block local_idxs[k] to the peer's block remote_idxs[k]. */
    result<xfer_id> write_blocks(std::string_view peer_id, span<const std::uint32_t> local_idxs,
                                 span<const std::uint32_t> remote_idxs, std::uint64_t user_data = 0)
    {
        return submit(::dt_write_blocks, peer_id, local_idxs, remote_idxs, user_data);
    }
    /** See dt_read_blocks: the peer's block remote_idxs[k] to local block local_idxs[k]. */
    result<xfer_id> read_blocks(std::string_view peer_id, span<const std::uint32_t> local_idxs,
                                span<const std::uint32_t> remote_idxs, std::uint64_t user_data = 0)
    {
        return submit(::dt_read_blocks, peer_id, local_idxs, remote_idxs, user_data);
    }
    /** See dt_poll, of every peer. Gives the part of buf that was filled. */
    result<span<completion>> poll(span<completion> buf) { return poll_of(nullptr, buf); }
    /** See dt_poll, of one peer. */
    result<span<completion>> poll(span<completion> buf, std::string_view peer_id)
    {
        return detail::named(peer_id, [&](const char *id) { return poll_of(id, buf); });
    }
    /** See dt_poll, of every peer, into a vector: at most `max` completions. */
    result<std::vector<completion>> poll_some(std::size_t max = 64)
    {
        std::vector<completion> all(max);
        const auto some = poll(all);
        if (!some)
            return some.why();
        all.resize(some->size());
        return all;
    }
    /** See dt_wait, for every peer. Nothing in time is ok, and empty. */
    result<span<completion>> wait(span<completion> buf, std::chrono::milliseconds timeout)
    {
        return wait_for(nullptr, buf, timeout);
    }
    /** See dt_wait, for one peer. */
    result<span<completion>> wait(span<completion> buf, std::chrono::milliseconds timeout,
                                  std::string_view peer_id)
    {
        return detail::named(peer_id, [&](const char *id) { return wait_for(id, buf, timeout); });
    }
    /** See dt_cancel with DT_CANCEL_IMMEDIATE. */
    result<void> cancel(span<const xfer_id> ids)
    {
        return detail::done(::dt_cancel(handle_, ids.data(), ids.size(), DT_CANCEL_IMMEDIATE,
                                        nullptr, nullptr));
    }
    /** See dt_cancel. Gives the ids that are still in flight, in still_inflight, which has room for
     * all; it may be ids itself. */
    result<span<xfer_id>> cancel(span<const xfer_id> ids, cancel_mode mode,
                                 span<xfer_id> still_inflight)
    {
        if (still_inflight.size() < ids.size())
            return failure{status::buffer_too_small,
                           "still_inflight has room for " + std::to_string(still_inflight.size()) +
                               " of " + std::to_string(ids.size()) + " ids"};
        std::size_t n = 0;
        const dt_status s =
            ::dt_cancel(handle_, ids.data(), ids.size(), static_cast<dt_cancel_mode>(mode),
                        still_inflight.data(), &n);
        return detail::with(s, still_inflight.first(n));
    }

    /* pull, and messages */

    /** See dt_post_read; the message may be empty, which is none. */
    result<xfer_id> post_read(std::string_view agent_name, span<const std::uint32_t> local_idxs,
                              span<const std::uint32_t> remote_idxs, bytes notif_msg = {})
    {
        if (local_idxs.size() != remote_idxs.size())
            return detail::lists(local_idxs.size(), remote_idxs.size());
        return detail::named(agent_name, [&](const char *name) {
            xfer_id id = 0;
            const dt_status s =
                ::dt_post_read(handle_, name, local_idxs.data(), remote_idxs.data(),
                               local_idxs.size(), notif_msg.data(), notif_msg.size(), &id);
            return detail::with(s, id);
        });
    }
    /** See dt_check_xfer_state. */
    result<xfer_state> check_xfer_state(xfer_id id)
    {
        dt_xfer_state state = DT_XFER_PROC;
        const dt_status s = ::dt_check_xfer_state(handle_, id, &state);
        return detail::with(s, static_cast<xfer_state>(state));
    }
    /** See dt_release_xfer. */
    result<void> release_xfer(xfer_id id) { return detail::done(::dt_release_xfer(handle_, id)); }
    /** See dt_send_notif. */
    result<void> send_notif(std::string_view agent_name, bytes msg)
    {
        return detail::named(agent_name, [&](const char *name) {
            return detail::done(::dt_send_notif(handle_, name, msg.data(), msg.size()));
        });
    }
    /** See dt_get_new_notifs. Gives the part of buf that was filled. arena_used, unless it is NULL,
     * gets the bytes that are needed when the arena is too small. */
    result<span<notif>> get_new_notifs(span<notif> buf, span<std::byte> arena,
                                       std::size_t *arena_used = nullptr)
    {
        std::size_t n = 0, used = 0;
        const dt_status s = ::dt_get_new_notifs(handle_, buf.data(), buf.size(), arena.data(),
                                                arena.size(), &n, arena_used ? arena_used : &used);
        return detail::with(s, buf.first(n));
    }
    /** The same, and each message has memory of its own; at most `max` of them. */
    result<std::vector<message>> get_messages(std::size_t max = 64)
    {
        std::vector<message> all;
        std::vector<std::byte> large;
        std::array<std::byte, 4096> small;
        std::array<notif, 16> some;
        span<std::byte> arena = small;
        while (all.size() < max) {
            const std::size_t left = max - all.size();
            const span<notif> buf(some.data(), left < some.size() ? left : some.size());
            std::size_t needed = 0;
            const auto got = get_new_notifs(buf, arena, &needed);
            if (got.code() == status::buffer_too_small) {
                large.resize(needed);
                arena = large;
                continue;
            }
            /* Those that were handed out do not come again: the next call tells of the failure. */
            if (!got && all.empty())
                return got.why();
            if (!got || got->empty())
                break;
            for (const notif &n : *got)
                all.push_back({n.agent_name, std::string(body(n))});
        }
        return all;
    }

    /** See dt_get_stats. */
    result<dt::stats> get_stats() const
    {
        dt::stats out{};
        out.struct_size = sizeof out;
        const dt_status s = ::dt_get_stats(handle_, &out);
        return detail::with(s, out);
    }

  private:
    using submission = decltype(::dt_write_blocks);

    result<xfer_id> submit(submission *call, std::string_view peer_id,
                           span<const std::uint32_t> local_idxs,
                           span<const std::uint32_t> remote_idxs, std::uint64_t user_data)
    {
        if (local_idxs.size() != remote_idxs.size())
            return detail::lists(local_idxs.size(), remote_idxs.size());
        return detail::named(peer_id, [&](const char *peer) {
            xfer_id id = 0;
            const dt_status s = call(handle_, peer, local_idxs.data(), remote_idxs.data(),
                                     local_idxs.size(), user_data, &id);
            return detail::with(s, id);
        });
    }
    result<span<completion>> poll_of(const char *peer_id, span<completion> buf)
    {
        std::size_t n = 0;
        const dt_status s = ::dt_poll(handle_, peer_id, buf.data(), buf.size(), &n);
        return detail::with(s, buf.first(n));
    }
    result<span<completion>> wait_for(const char *peer_id, span<completion> buf,
                                      std::chrono::milliseconds timeout)
    {
        std::size_t n = 0;
        const dt_status s =
            ::dt_wait(handle_, peer_id, buf.data(), buf.size(), detail::ms(timeout), &n);
        return detail::with(s, buf.first(n));
    }

    region memory_{}; /* freed after the transport is destroyed */
    dt_transport *handle_ = nullptr;
    std::chrono::milliseconds close_timeout_{1000};
};

} // namespace dt

#endif
