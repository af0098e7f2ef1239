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
 * Memory for dt.hpp, which includes this: an owner of what dt_region_alloc gives.
 */
#ifndef DT_REGION_HPP
#define DT_REGION_HPP

#include <cstddef>
#include <cstdint>
#include <utility>

#include "basics.hpp"

namespace dt {

/** Memory that peers on the same host reach in the fastest way, and its owner; see dt_region_alloc.
 * It stays where it is when the owner is moved. */
class region {
  public:
    /** Takes memory from the system. */
    static result<region> alloc(std::size_t size)
    {
        region r;
        const dt_status s = ::dt_region_alloc(size, &r.base_, &r.fd_);
        r.size_ = size;
        return detail::with(s, std::move(r));
    }
    region() noexcept = default; /**< Of nothing. */
    region(region &&other) noexcept { swap(other); } /**< Leaves nothing there. */
    /** Frees what it had, which no open transport may be using. */
    region &operator=(region &&other) noexcept
    {
        region taken = std::move(other);
        swap(taken);
        return *this;
    }
    region(const region &) = delete;            /**< There is one owner. */
    region &operator=(const region &) = delete; /**< There is one owner. */
    /** See dt_region_free: no open transport may be using it. */
    ~region() { ::dt_region_free(base_, size_, fd_); }

    [[nodiscard]] void *data() const noexcept { return base_; }       /**< Its first byte. */
    [[nodiscard]] std::size_t size() const noexcept { return size_; } /**< As was asked for. */
    /** Its memory file; -1: of nothing. */
    [[nodiscard]] std::int32_t fd() const noexcept { return fd_; }
    /** All of it. */
    [[nodiscard]] span<std::byte> memory() const noexcept
    {
        return {static_cast<std::byte *>(base_), size_};
    }
    /** Changes the two. */
    void swap(region &other) noexcept
    {
        std::swap(base_, other.base_);
        std::swap(size_, other.size_);
        std::swap(fd_, other.fd_);
    }

  private:
    void *base_ = nullptr;
    std::size_t size_ = 0;
    std::int32_t fd_ = -1;
};

} // namespace dt

#endif
