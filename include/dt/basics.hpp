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
 * The small things of dt.hpp, which includes this: enum classes, views of lists and bytes, and
 * results.
 */
#ifndef DT_BASICS_HPP
#define DT_BASICS_HPP

#if __cplusplus < 201703L
#error "dt.hpp needs C++17: compile with -std=c++17 or newer"
#endif

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "../dt.h"

/** @cond of no use outside */
#if defined(__cpp_exceptions)
#define DT_HPP_THROWS true
#else
#define DT_HPP_THROWS false
#endif
/** @endcond */

/** The C++ layer of libdatatransport. */
namespace dt {

/* ---- names for what dt.h has ---- */

using xfer_id = ::dt_xfer_id;        /**< See dt_xfer_id. */
using completion = ::dt_completion;  /**< See dt_completion, and dt::outcome. */
using notif = ::dt_notif;            /**< See dt_notif, and dt::message. */
using stats = ::dt_stats;            /**< See dt_stats. */
using blob = std::vector<std::byte>; /**< Bytes that a peer must get; of no alignment. */

/** See dt_status. It may hold a number that has no name here, of a newer library: a failure. */
enum class status : std::int32_t {
    ok = DT_OK,                                 /**< DT_OK */
    invalid_arg = DT_ERR_INVALID_ARG,           /**< DT_ERR_INVALID_ARG */
    out_of_range = DT_ERR_OUT_OF_RANGE,         /**< DT_ERR_OUT_OF_RANGE */
    not_found = DT_ERR_NOT_FOUND,               /**< DT_ERR_NOT_FOUND */
    incompatible = DT_ERR_INCOMPATIBLE,         /**< DT_ERR_INCOMPATIBLE */
    buffer_too_small = DT_ERR_BUFFER_TOO_SMALL, /**< DT_ERR_BUFFER_TOO_SMALL */
    closed = DT_ERR_CLOSED,                     /**< DT_ERR_CLOSED */
    backend_failed = DT_ERR_BACKEND,            /**< DT_ERR_BACKEND */
    unavailable = DT_ERR_UNAVAILABLE,           /**< DT_ERR_UNAVAILABLE */
    peer_lost = DT_ERR_PEER_LOST,               /**< DT_ERR_PEER_LOST */
    cancelled = DT_ERR_CANCELLED,               /**< DT_ERR_CANCELLED */
    timeout = DT_ERR_TIMEOUT,                   /**< DT_ERR_TIMEOUT */
    busy = DT_ERR_BUSY,                         /**< DT_ERR_BUSY */
    no_memory = DT_ERR_NO_MEMORY,               /**< DT_ERR_NO_MEMORY */
    forked = DT_ERR_FORKED,                     /**< DT_ERR_FORKED */
    internal = DT_ERR_INTERNAL,                 /**< DT_ERR_INTERNAL */
};

/** See dt_xfer_state. Every number but these two is the dt::status of a read that has failed. */
enum class xfer_state : std::int32_t {
    done = DT_XFER_DONE,        /**< DT_XFER_DONE */
    in_progress = DT_XFER_PROC, /**< DT_XFER_PROC */
};

/** See dt_backend. */
enum class backend : std::int32_t {
    automatic = DT_BACKEND_AUTO, /**< DT_BACKEND_AUTO */
    local = DT_BACKEND_LOCAL,    /**< DT_BACKEND_LOCAL */
    nixl = DT_BACKEND_NIXL,      /**< DT_BACKEND_NIXL */
};

/** See dt_cancel_mode. */
enum class cancel_mode : std::int32_t {
    immediate = DT_CANCEL_IMMEDIATE, /**< DT_CANCEL_IMMEDIATE */
    wait = DT_CANCEL_WAIT,           /**< DT_CANCEL_WAIT */
};

/** See dt_log_level. */
enum class log_level : std::int32_t {
    off = DT_LOG_OFF,     /**< DT_LOG_OFF */
    error = DT_LOG_ERROR, /**< DT_LOG_ERROR */
    warn = DT_LOG_WARN,   /**< DT_LOG_WARN */
    info = DT_LOG_INFO,   /**< DT_LOG_INFO */
    debug = DT_LOG_DEBUG, /**< DT_LOG_DEBUG */
};

/** "DT_OK", "DT_ERR_TIMEOUT" and so on; see dt_status_str. */
[[nodiscard]] inline const char *to_string(status s) noexcept
{
    return ::dt_status_str(static_cast<dt_status>(s));
}

/** "DONE", "PROC", or the name of the failure; see dt_xfer_state_str. */
[[nodiscard]] inline const char *to_string(xfer_state s) noexcept
{
    return ::dt_xfer_state_str(static_cast<dt_xfer_state>(s));
}

/** "AUTO", "LOCAL" or "NIXL"; "?" for another number. */
[[nodiscard]] inline const char *to_string(backend b) noexcept
{
    return b == backend::automatic ? "AUTO"
           : b == backend::local   ? "LOCAL"
           : b == backend::nixl    ? "NIXL"
                                   : "?";
}

/** "IMMEDIATE" or "WAIT"; "?" for another number. */
[[nodiscard]] inline const char *to_string(cancel_mode m) noexcept
{
    return m == cancel_mode::immediate ? "IMMEDIATE" : m == cancel_mode::wait ? "WAIT" : "?";
}

/** "OFF", "ERROR", "WARN", "INFO" or "DEBUG"; "?" for another number. */
[[nodiscard]] inline const char *to_string(log_level l) noexcept
{
    return l == log_level::off     ? "OFF"
           : l == log_level::error ? "ERROR"
           : l == log_level::warn  ? "WARN"
           : l == log_level::info  ? "INFO"
           : l == log_level::debug ? "DEBUG"
                                   : "?";
}

/** How a transfer has ended. */
[[nodiscard]] inline status outcome(const completion &c) noexcept
{
    return static_cast<status>(c.status);
}

/** How a posted read has ended: ok for done, and only to be asked when it is not in progress. */
[[nodiscard]] inline status outcome(xfer_state s) noexcept { return static_cast<status>(s); }

/* ---- views ---- */

/** A view of elements that lie side by side elsewhere, as std::span is in C++20. It is made of what
 * has std::data and std::size (an array, a vector, a std::span) and, for constants, of a list in
 * braces. A view of what can be written is not made of a temporary, unless that is a view, too. */
template <class T> class span {
    template <class C>
    using element = std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>;
    template <class C>
    static constexpr bool is_view =
        std::is_trivially_copyable_v<C> && std::is_constructible_v<C, T *, std::size_t>;

  public:
    using value_type = std::remove_cv_t<T>; /**< What it is a view of. */

    constexpr span() noexcept = default; /**< Of nothing. */

    /** Of `size` elements from `data` on. */
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}

    /** Of all elements of a container, an array or another view. */
    template <class C, class = std::enable_if_t<
                           std::is_convertible_v<element<C> (*)[], T (*)[]> &&
                           (std::is_const_v<T> || std::is_lvalue_reference_v<C> || is_view<C>)>>
    constexpr span(C &&c) noexcept : data_(std::data(c)), size_(std::size(c))
    {
    }

    /** Of a list in braces, which lives as long as the call that it is an argument of. */
    template <class U = T, class = std::enable_if_t<std::is_const_v<U>>>
    constexpr span(std::initializer_list<value_type> list) noexcept : size_(list.size())
    {
        data_ = list.begin();
    }

    [[nodiscard]] constexpr T *data() const noexcept { return data_; } /**< The first element. */
    /** How many there are. */
    [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
    /** Is there none? */
    [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] constexpr T *begin() const noexcept { return data_; } /**< The first element. */
    /** Behind the last one. */
    [[nodiscard]] constexpr T *end() const noexcept { return data_ + size_; }
    /** i is below size. */
    constexpr T &operator[](std::size_t i) const noexcept { return data_[i]; }
    /** Of the first n, which is at most size. */
    [[nodiscard]] constexpr span first(std::size_t n) const noexcept { return {data_, n}; }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/** A view of bytes to be read: of a pointer and a length, of text (without a NUL at its end), or of
 * a container of chars, unsigned chars or std::bytes. */
class bytes {
    template <class C>
    using element = std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>;

  public:
    constexpr bytes() noexcept = default; /**< Of nothing. */

    /** Of `size` bytes from `data` on. */
    constexpr bytes(const void *data, std::size_t size) noexcept : data_(data), size_(size) {}

    /** Of a text up to its NUL, a literal for instance. */
    constexpr bytes(const char *text) : bytes(std::string_view(text)) {}

    /** Not of a buffer of chars, which may be a text or not: say how many there are. */
    template <std::size_t N> bytes(char (&buffer)[N]) = delete;

    /** Of a text. */
    constexpr bytes(std::string_view text) noexcept : data_(text.data()), size_(text.size()) {}

    /** Of all bytes of a container or another view. */
    template <class C, class = std::enable_if_t<
                           sizeof(element<C>) == 1 && std::is_trivially_copyable_v<element<C>> &&
                           !std::is_convertible_v<const C &, const char *>>>
    constexpr bytes(const C &c) noexcept : data_(std::data(c)), size_(std::size(c))
    {
    }

    /** The first byte. */
    [[nodiscard]] constexpr const void *data() const noexcept { return data_; }
    /** How many there are. */
    [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }

  private:
    const void *data_ = nullptr;
    std::size_t size_ = 0;
};

/* ---- results ---- */

/** Why a call has failed. It becomes any dt::result, so that it can be handed on. */
struct failure {
    status code;      /**< Never ok. */
    std::string text; /**< What dt_last_error said, at once and on the thread of the call. */
};

/** What result::value throws. what() is the name of the status and the sentence. */
class error : public std::runtime_error {
  public:
    /** Of a failure. */
    explicit error(const failure &why)
        : std::runtime_error(to_string(why.code) + (": " + why.text)), code_(why.code)
    {
    }
    [[nodiscard]] status code() const noexcept { return code_; } /**< Why. */

  private:
    status code_;
};

/** @cond of no use outside */
namespace detail {

/* Two names rather than two bodies of one: files that are compiled with exceptions and without them
 * may be linked together. */
template <bool Throws> struct report {
    [[noreturn]] static void now(const failure &why)
    {
        std::fprintf(stderr, "%s: %s\n", to_string(why.code), why.text.c_str());
        std::abort();
    }
};
#if defined(__cpp_exceptions)
template <> struct report<true> {
    [[noreturn]] static void now(const failure &why) { throw error(why); }
};
#endif

} // namespace detail
/** @endcond */

/** What a call gave, or why it has failed. As std::expected is in C++23. */
template <class T> class [[nodiscard]] result {
  public:
    result(T value) : value_(std::move(value)) {} /**< It went well. */
    result(failure why) : why_(std::move(why)) {} /**< It did not. */

    explicit operator bool() const noexcept { return ok(); } /**< Did it go well? */
    [[nodiscard]] bool ok() const noexcept { return value_.has_value(); } /**< Did it go well? */
    [[nodiscard]] status code() const noexcept { return why_.code; } /**< ok, or why not. */
    /** "", or the sentence. */
    [[nodiscard]] const std::string &text() const noexcept { return why_.text; }
    [[nodiscard]] const failure &why() const noexcept { return why_; } /**< Of what is not ok. */

    T &operator*() & { return *value_; }                   /**< What it gave, if it is ok. */
    const T &operator*() const & { return *value_; }       /**< The same. */
    T operator*() && { return *std::move(value_); }        /**< No reference: to be looped over. */
    T *operator->() { return std::addressof(*value_); }    /**< Into what it gave. */
    const T *operator->() const { return std::addressof(*value_); } /**< The same. */

    /** What it gave; or else it throws dt::error. Without exceptions it ends the process then, and
     * says on stderr why. */
    template <bool Throws = DT_HPP_THROWS> T &value() &
    {
        if (!ok())
            detail::report<Throws>::now(why_);
        return *value_;
    }
    /** The same of what may not be changed. */
    template <bool Throws = DT_HPP_THROWS> const T &value() const &
    {
        if (!ok())
            detail::report<Throws>::now(why_);
        return *value_;
    }
    /** The same of a temporary. */
    template <bool Throws = DT_HPP_THROWS> T value() &&
    {
        return std::move(this->template value<Throws>());
    }
    /** What it gave, or else `other`. */
    [[nodiscard]] T value_or(T other) &&
    {
        return ok() ? *std::move(value_) : std::move(other);
    }
    /** The same of what is not a temporary, by a copy. */
    [[nodiscard]] T value_or(T other) const & { return ok() ? *value_ : std::move(other); }

  private:
    std::optional<T> value_{};
    failure why_{status::ok, {}};
};

/** The result of a call that gives nothing. */
template <> class [[nodiscard]] result<void> {
  public:
    result() = default;                           /**< It went well. */
    result(failure why) : why_(std::move(why)) {} /**< It did not. */

    explicit operator bool() const noexcept { return ok(); } /**< Did it go well? */
    [[nodiscard]] bool ok() const noexcept { return why_.code == status::ok; } /**< The same. */
    [[nodiscard]] status code() const noexcept { return why_.code; } /**< ok, or why not. */
    /** "", or the sentence. */
    [[nodiscard]] const std::string &text() const noexcept { return why_.text; }
    [[nodiscard]] const failure &why() const noexcept { return why_; } /**< Of what is not ok. */

    /** Throws dt::error unless it is ok; without exceptions as the other value does. */
    template <bool Throws = DT_HPP_THROWS> void value() const
    {
        if (!ok())
            detail::report<Throws>::now(why_);
    }

  private:
    failure why_{status::ok, {}};
};

/** @cond of no use outside */
namespace detail {

inline failure last(dt_status s) { return {static_cast<status>(s), ::dt_last_error()}; }

template <class T> result<T> with(dt_status s, T value)
{
    if (s != DT_OK)
        return last(s);
    return value;
}

inline result<void> done(dt_status s)
{
    if (s != DT_OK)
        return last(s);
    return {};
}

} // namespace detail
/** @endcond */

} // namespace dt

#if __cplusplus >= 202002L
/** @cond of no use outside */
/* It owns nothing, so a std::span may be made of a temporary. */
template <class T> inline constexpr bool std::ranges::enable_borrowed_range<dt::span<T>> = true;
/** @endcond */
#endif

#undef DT_HPP_THROWS

#endif
