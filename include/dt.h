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

/**
 * @file
 * libdatatransport moves blocks of memory (the KV cache of language models, embeddings of an
 * encoder) between processes that serve a model. This file is its whole interface. It is generated:
 * change the sources, not this file.
 *
 * A program makes a transport for a region of its memory (dt_create), tells its peers how to reach
 * it (dt_export_handshake, sent by any means) and makes the peers known (dt_import_handshake).
 *
 * To push blocks, it submits transfers (dt_write_blocks, dt_read_blocks) and asks regularly what
 * has become of them (dt_poll). To pull blocks and tell their owner, a consumer posts reads
 * (dt_post_read) and asks for each (dt_check_xfer_state), and the producer asks for the messages
 * that go with them (dt_get_new_notifs), to use the blocks again. In the end a program closes the
 * transport (dt_close) and frees it (dt_destroy).
 *
 * Peers that use NIXL without this library are made known by their own data: dt_add_remote_peer
 * takes the address, number and length of the blocks, dt_add_remote_agent a list of them.
 *
 *
 * CONVENTIONS, which hold for every function
 * ------------------------------------------
 *
 * Errors. A function that can fail returns a dt_status: DT_OK is 0, errors are negative. A result
 * comes back through a pointer, which is written on DT_OK only, unless the function says otherwise.
 * A call that was refused has left everything as it was. DT_ERR_INVALID_ARG is for malformed input,
 * DT_ERR_INCOMPATIBLE for well-formed input that does not fit together. DT_ERR_INTERNAL means a
 * fault of this library: the process goes on, but the transport refuses all further work.
 *
 * Last error. dt_last_error is a sentence about the last call that failed on the calling thread. It
 * is valid until the next failure on that thread. What a transfer failed of is in the log.
 *
 * Pointers. NULL where a pointer is needed is DT_ERR_INVALID_ARG, and so is a pointer that is not
 * aligned for its type; neither crashes. What a pointer points to must be readable or writable
 * memory of the stated size during the call, and no other thread may change it meanwhile. The
 * library keeps no pointer of the caller after a call has returned, except for the region of a
 * transport and the log callback.
 *
 * Strings and blobs. Strings are NUL-terminated UTF-8. Blobs have an explicit length and may hold
 * any byte.
 *
 * Fill a buffer. A function with (buf, cap, len) sets *len to the size needed, whatever cap is. If
 * cap is less, it returns DT_ERR_BUFFER_TOO_SMALL and leaves buf untouched. NULL and 0 ask for the
 * size.
 *
 * Ownership. Memory that the caller passes stays the caller's. The library hands out two things to
 * give back: transports (to dt_destroy) and memory of dt_region_alloc (to dt_region_free). Strings
 * that it returns are its own; each function says how long they live.
 *
 * Enums. A parameter or field of an enum type may hold any integer; an unknown one is
 * DT_ERR_INVALID_ARG. A bool may hold any byte; all but 0 are true.
 *
 * struct_size. A struct that may grow starts with its size in bytes, set by the caller to its own
 * sizeof. Programs that were compiled with an older header work with a newer library of the same
 * major version. A program that was compiled with a newer header works too if it leaves the fields
 * that the library does not know at 0, otherwise the call is DT_ERR_INCOMPATIBLE. A size below that
 * of the first version, or above 4096, is DT_ERR_INVALID_ARG. A struct that the library fills is
 * filled up to struct_size. dt_completion and dt_notif are elements of arrays and never grow.
 *
 * Out of memory. What the caller makes large (number of indexes, buffers) is DT_ERR_NO_MEMORY when
 * there is no memory for it. When a process has no memory even for the small things behind a call,
 * it is aborted.
 *
 * Process-wide effects. There are none: no signal handlers, no changes of the environment, no
 * atexit functions, no threads of its own, nothing on stdout. Nothing goes to stderr, unless no log
 * callback was set and the environment variable DT_LOG asks for it. NIXL is the exception: once it
 * is loaded, it stays, and prints its own errors on stderr (NIXL_LOG_LEVEL). A function of atexit
 * notes when NIXL cannot be called any more, so that transports may be closed late and other
 * threads may go on calling; it waits for calls that are under way (at most 5 s). As long as there
 * are transports over it, its UCX has one thread, which sleeps until a connection needs it, and
 * those of dt_options.progress_thread and nixl_num_threads. Programs that the process starts
 * inherit UCX's sockets, so that peers may not notice its death before theirs. UCX is told four
 * things, unless the user has set them: not to print (UCX_LOG_LEVEL); where there is no RDMA
 * device, not to load the module for RDMA, which would crash when the process exits (UCX_MODULES);
 * not to wait in connect() (UCX_TCP_CONN_NB); and to send up to 64 KiB over a socket in one segment
 * (UCX_TCP_TX_SEG_SIZE, left alone also where UCX_TCP_RX_SEG_SIZE is set).
 *
 * Environment. It is read, so other threads must not change it at the same time (setenv). DT_LOG is
 * read at the first message, and by dt_create DT_BACKEND. When dt_create wants NIXL, it reads
 * DT_NIXL_LIB_DIR, LD_LIBRARY_PATH, UCX_MODULES and UCX_MODULE_DIR (to look at the files before
 * they are loaded), and what is NIXL's own: NIXL_PLUGIN_DIR (the folder of its plugins, if that is
 * not beside its library), NIXL_CONFIG_FILE and HOME. NIXL and UCX then read all that begins with
 * NIXL_ and UCX_; UCX_TLS and UCX_NET_DEVICES choose the network. Nothing is ever set there: the
 * four things above UCX is told by its functions.
 *
 *
 * THREADS
 * -------
 *
 * Every function may be called from any thread at any time. Calls on one transport take turns
 * inside the library; calls on different transports run at the same time. The one exception is
 * dt_destroy.
 *
 *     functions                              on one transport   blocks at most for
 *     -------------------------------------  -----------------  -----------------------------------
 *     dt_write_blocks, dt_read_blocks,       any, any thread    the turns of other threads
 *       dt_post_read, dt_release_xfer,
 *       dt_cancel, dt_send_notif,
 *       dt_add_remote_peer,
 *       dt_add_remote_agent,
 *       dt_import_handshake,
 *       dt_remove_remote_peer,
 *       dt_peer_status, dt_get_stats,
 *       dt_get_agent_metadata,
 *       dt_get_mem_descriptor,
 *       dt_export_handshake
 *     dt_poll, dt_check_xfer_state           any, any thread    poll_budget_us, and others' turns
 *     dt_get_new_notifs                      any, any thread    that, and copying what it hands out
 *     dt_wait                                any, any thread    timeout_ms, and one dt_poll
 *     dt_close                               any, any thread    timeout_ms, and others' turns
 *     dt_base_addr and the other accessors   any, any thread    nothing
 *     dt_destroy                             last use, alone    about 1 s, see there
 *     dt_set_log_callback                    -                  callbacks that are running
 *     dt_create, dt_region_free              -                  the operating system
 *     dt_region_alloc                        -                  that, for 5 s at most
 *     dt_status_str, dt_xfer_state_str,      -                  nothing
 *       dt_last_error, dt_version,
 *       fingerprints
 *
 * The times hold for one transfer. A call that has to do with many (a list of ids to cancel, a peer
 * with many transfers that is removed or found dead) takes a few microseconds more for each.
 *
 * A turn is one call, or one slice of at most poll_budget_us of dt_wait, which lets others in
 * between slices. A log callback runs at the end of a call, when the turn is over. Cancelling a
 * thread (pthread_cancel) takes effect when the call it is in has returned.
 *
 * No function may be called from a handler of a signal. Such a handler must not leave a call that
 * it has interrupted: no longjmp, no pthread_exit. With NIXL a thread that calls needs a stack of
 * 64 KiB or more, beyond what the program's own handlers use; with LOCAL 16 KiB are enough. The
 * main thread may end (pthread_exit) while others go on; over NIXL, peers that copy by the kernel
 * (UCX's cma) then fail. All threads that use a transport share the file descriptors of the one
 * that made it: none of them calls unshare(CLONE_FILES) afterwards.
 *
 *
 * FORK
 * ----
 *
 * A transport belongs to the process that made it. In a forked child every function on it returns
 * DT_ERR_FORKED (accessors answer); dt_destroy gives back what the child has. Neither disturbs the
 * parent. The child may make transports of its own; with NIXL only if its parent had none open
 * then, for UCX does not work in the child otherwise, and dt_create says so (DT_ERR_UNAVAILABLE).
 * All that holds also when other threads were inside the library at the fork: no call of the child
 * takes a lock that a thread may have which does not exist there. One chance in very many remains:
 * where threads of the child wait for each other's turns, they meet in a table of the process, and
 * one place of it may just have been in use at the fork. Two things are lost: dt_destroy gives
 * nothing back of a transport that another thread was just using, and the log is off if another
 * thread was just setting its callback.
 *
 * With NIXL, a child that was forked while other threads were inside calls must not use NIXL for
 * transports of its own, and must end by _exit or exec: UCX has locks, which those threads may have
 * had, and exit() was seen to wait for one.
 *
 *
 * WHAT IS PROMISED ABOUT TRANSFERS
 * --------------------------------
 *
 * Exactly once. Every id that a submission gave ends in exactly one way: it is reported once by
 * dt_poll or dt_wait; or dropped by dt_cancel and never reported; or ended by dt_close. The id of a
 * posted read is never reported: it is asked for, and lives until it is released. A message that
 * was accepted is handed out once.
 *
 * Quiescent. When an id has been reported, with success or failure, the library will not read or
 * write the blocks of its transfer again on either side. A status that would be known earlier waits
 * for that.
 *
 * Isolated. The death, the slowness or the garbage of one peer does not touch the transfers with
 * others.
 *
 *
 * WHAT NIXL CANNOT KEEP
 * ---------------------
 *
 * NIXL and its UCX do the work of that backend, and some of it is out of this library's hands. (1)
 * to (3) were seen with UCX over sockets, that is between hosts without RDMA, or with UCX_TLS=tcp.
 *
 *  0. The side that is written to or read from has to call dt_poll, too, or set
 *     dt_options.progress_thread. Where the kernel copies, that is needed for connections only.
 *     When a peer has answered nothing for 5 s, though something waits for it and this side polls,
 *     the log names it (DT_LOG_WARN), once for each registration.
 *  1. A peer that dies, or destroys its transport without dt_close, while it reads from this
 *     process can take this process with it: UCX aborts or crashes when it has answers for an
 *     endpoint that broke. This side's own dt_close and dt_destroy are kept from that (if /proc can
 *     be read): they end the connections of peers that have not taken their answers yet, so that
 *     what these were reading or writing fails there.
 *  2. A peer whose region is not what its metadata says can be killed by a write to it. NIXL's
 *     metadata carries no signature: get it over a channel that you trust.
 *  3. Without dt_options.progress_thread, a call that drives work lasts as long as peers keep
 *     sending at full speed, beyond poll_budget_us, and other threads wait for their turn
 *     meanwhile.
 *  4. The death of a peer is noticed by transfers, not while nothing is in flight. UCX's sockets
 *     have no FD_CLOEXEC: as long as a program that the peer has started still has copies of them,
 *     neither the peer's death nor its dt_close is noticed, and transfers stay in flight. Start
 *     programs with these descriptors closed (close_range, posix_spawn with addclosefrom_np;
 *     Python's subprocess does it by itself).
 *  5. dt_close does not keep peers from these addresses; see there.
 *  6. A message that was accepted can be lost when its sender is killed, or ends without dt_close,
 *     before the receiver has asked for it: when it is long and goes over sockets alone; when a
 *     transfer of the sender's was still running; when the sender had not taken in what the
 *     receiver had sent. What comes from more than 1,024 senders at once is dropped, as what is
 *     beyond the bounds of dt_get_new_notifs; with dt_options.progress_thread NIXL keeps what
 *     comes without a bound until this process polls.
 *  7. UCX keeps a socket or two for each registration of a live peer that was removed, until the
 *     peer ends or the transport is closed; see dt_remove_remote_peer.
 *  8. When a receiver that knows the sender as a peer, too, has removed it or added it again, a
 *     message that UCX sends in several segments is lost, and the sender is told DT_OK. Over
 *     sockets that is one of more than 64,000 bytes with its sender's name (or less, if
 *     UCX_TCP_RX_SEG_SIZE is set); with RDMA devices one that exceeds their segments.
 *  9. A process that has no file descriptors left while a peer connects may be deaf to new peers
 *     from then on: UCX closes the socket on which it listens when accept() fails, and never opens
 *     it again. Connections that are there go on; transfers of new peers fail or stay in flight.
 *     The log tells it (DT_LOG_ERROR) as long as this side polls. Leave room below RLIMIT_NOFILE;
 *     the remedy is to close the transport and create it again.
 */


#ifndef DT_H
#define DT_H

/* Generated from the sources by cbindgen. Do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Version of this header: major. See dt_version for the library that is running. */
#define DT_VERSION_MAJOR 0
/** Version of this header: minor. */
#define DT_VERSION_MINOR 1
/** Version of this header: patch. */
#define DT_VERSION_PATCH 0

/** Version of the interface in this header: major << 16 | minor. */
#define DT_ABI_VERSION 0x00000001u

/**
 * Initialiser of a dt_options that asks for the defaults, in C and in C++:
 *
 *     dt_options options = DT_OPTIONS_INIT;
 */
#define DT_OPTIONS_INIT \
    { \
        sizeof(dt_options), /* struct_size */ \
        DT_ABI_VERSION,     /* abi_version */ \
        DT_BACKEND_AUTO,    /* backend */ \
        NULL,               /* agent_name */ \
        NULL,               /* config_json */ \
        NULL,               /* nixl_lib_dir */ \
        NULL,               /* nixl_plugin */ \
        0,                  /* nixl_num_threads */ \
        false,              /* progress_thread */ \
        0,                  /* region_fd */ \
        0,                  /* region_offset */ \
        false,              /* region_has_fd */ \
        0                   /* poll_budget_us */ \
    }

/**
 * What moves the bytes.
 */
enum dt_backend
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The environment variable DT_BACKEND decides ("local" or "nixl"); where it is not set, NIXL
     * if it can be loaded, else LOCAL. The log says at level info which one it is, and why; it
     * warns (DT_LOG_WARN) when it is LOCAL though nixl_lib_dir or DT_NIXL_LIB_DIR names a place
     * for NIXL.
     */
    DT_BACKEND_AUTO = 0,
    /**
     * Copies between processes of one host (one kernel, one PID namespace).
     */
    DT_BACKEND_LOCAL = 1,
    /**
     * NIXL over UCX, between hosts, also with peers that speak NIXL without this library. Its
     * library is looked for at run time; where it is missing: DT_ERR_UNAVAILABLE.
     */
    DT_BACKEND_NIXL = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dt_backend dt_backend;
#else
typedef int32_t dt_backend;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What dt_cancel does with a transfer that cannot be stopped at once.
 */
enum dt_cancel_mode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Forget it: its blocks may still be touched for a while.
     */
    DT_CANCEL_IMMEDIATE = 0,
    /**
     * Leave it in flight and say so.
     */
    DT_CANCEL_WAIT = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dt_cancel_mode dt_cancel_mode;
#else
typedef int32_t dt_cancel_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How important a message is. A callback gets its own level and all more important ones.
 */
enum dt_log_level
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Nothing.
     */
    DT_LOG_OFF = 0,
    /**
     * Something is broken and stays so.
     */
    DT_LOG_ERROR = 1,
    /**
     * Something failed, or works worse than it could.
     */
    DT_LOG_WARN = 2,
    /**
     * What was chosen, and why.
     */
    DT_LOG_INFO = 3,
    /**
     * The end of every transfer.
     */
    DT_LOG_DEBUG = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dt_log_level dt_log_level;
#else
typedef int32_t dt_log_level;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * One end of the data plane: a region of memory, the peers that it moves blocks to and from, and
 * the transfers in flight. Opaque; made by dt_create, freed by dt_destroy.
 */
typedef struct dt_transport dt_transport;

/**
 * The result of a call, or of a transfer: DT_OK, or one of the negative DT_ERR_ codes. A number is
 * never reused; later versions may add codes, so treat an unknown negative one as a failure.
 */
typedef int32_t dt_status;

/**
 * How a transport should be. Start with DT_OPTIONS_INIT and set what you need: zero in every field
 * but the first means the default. The library keeps no pointer into it.
 */
typedef struct dt_options {
    /**
     * sizeof(dt_options), as the caller was compiled.
     */
    size_t struct_size;
    /**
     * DT_ABI_VERSION of the header that the caller was compiled with; another major version than
     * the library's is refused with DT_ERR_INCOMPATIBLE. 0: not checked.
     */
    uint32_t abi_version;
    /**
     * What moves the bytes.
     */
    dt_backend backend;
    /**
     * Name of this node, 1 to 1000 bytes, unique among the nodes that it meets. NULL: generated.
     */
    const char *agent_name;
    /**
     * Model configuration as the text of a JSON object, from which the fingerprint is computed as
     * by dt_compute_fingerprint. NULL: no fingerprint.
     */
    const char *config_json;
    /**
     * NIXL: folder of libnixl_capi.so, or that file. NULL or "": the environment variable
     * DT_NIXL_LIB_DIR, else the path that the dynamic loader searches.
     */
    const char *nixl_lib_dir;
    /**
     * NIXL: name of the plugin. NULL: "UCX".
     */
    const char *nixl_plugin;
    /**
     * NIXL: number of the plugin's worker threads, at most 64. 0: none. UCX uses them for requests
     * of 1024 runs and more, and this library posts smaller ones: with UCX they bring nothing.
     * dt_create wants 64 file descriptors free, and 12 for each of them (DT_ERR_NO_MEMORY).
     */
    uint32_t nixl_num_threads;
    /**
     * NIXL: true lets the engine run a thread of its own, which looks every 5 ms for what has come
     * in. False: no background thread, all work is done inside dt_poll and dt_wait. LOCAL never
     * has a background thread.
     */
    bool progress_thread;
    /**
     * LOCAL: the file descriptor whose memory the region is, if region_has_fd. It is duplicated:
     * the caller's own may be closed as soon as dt_create has returned. The region must be a
     * MAP_SHARED mapping of it. Peers map the descriptor, which is the fastest way to the memory,
     * if it is a memfd (of normal or huge pages) that is sealed with F_SEAL_SHRINK, as
     * dt_region_alloc makes it. Otherwise, and for a region without a descriptor, they use
     * process_vm_writev and process_vm_readv, which need besides that neither
     * kernel.yama.ptrace_scope nor a seccomp profile forbids them.
     */
    int32_t region_fd;
    /**
     * LOCAL: offset in bytes of the region's base in region_fd.
     */
    uint64_t region_offset;
    /**
     * LOCAL: true if region_fd and region_offset are meant; false: they are not looked at.
     */
    bool region_has_fd;
    /**
     * Time in microseconds that one dt_poll works before it returns, up to 1000000 (1 s); it may
     * take as much longer as one small piece of work needs. 0: 500.
     */
    uint32_t poll_budget_us;
} dt_options;

/**
 * Names one transfer of one transport. Never 0, and never used again by that transport.
 */
typedef uint64_t dt_xfer_id;

/**
 * How a transfer ended. An element of the caller's array: it never grows.
 */
typedef struct dt_completion {
    /**
     * The id that the submission gave.
     */
    dt_xfer_id id;
    /**
     * As given at submission.
     */
    uint64_t user_data;
    /**
     * Bytes that were moved; 0 unless status is DT_OK.
     */
    uint64_t bytes;
    /**
     * DT_OK: the bytes of a write can be read at the target; those of a read are in the local
     * region. Otherwise why it failed: the destination blocks may hold old bytes, new bytes, or
     * both. In either case the library will not touch the blocks of this transfer again.
     *
     * dt_last_error is not about this. What went wrong is in the log: at level DT_LOG_WARN the
     * first failure of a peer and what faulted it, at level DT_LOG_DEBUG every one.
     */
    dt_status status;
    /**
     * 0.
     */
    uint32_t reserved;
} dt_completion;

/**
 * Where a posted read stands: DT_XFER_DONE, DT_XFER_PROC, or a negative DT_ERR_ code, which is why
 * it failed. DT_XFER_DONE and failures are final: a later check says the same.
 */
typedef int32_t dt_xfer_state;

/**
 * One message that has come. An element of the caller's array: it never grows.
 */
typedef struct dt_notif {
    /**
     * The name that the sender gave itself, NUL-terminated UTF-8 of 1 to 1000 bytes, in the
     * caller's arena. It is a claim: with LOCAL every program of the same user can send, with NIXL
     * everyone who reaches the network address. What comes under any other name is thrown away,
     * and counted in dt_stats.notifs_refused.
     */
    const char *agent_name;
    /**
     * Its bytes, in the caller's arena, not aligned.
     */
    const void *msg;
    /**
     * Their number.
     */
    size_t msg_len;
} dt_notif;

/**
 * Counters of one transport since it was made. Always: submitted = done + failed + cancelled +
 * inflight. A transfer that has ended counts by its outcome, whether it was reported yet or not.
 */
typedef struct dt_stats {
    /**
     * sizeof(dt_stats), set by the caller before the call.
     */
    size_t struct_size;
    /**
     * Transfers that were given an id.
     */
    uint64_t submitted;
    /**
     * Transfers that have moved all their bytes.
     */
    uint64_t done;
    /**
     * Transfers that have failed, except for being cancelled.
     */
    uint64_t failed;
    /**
     * Transfers that ended as DT_ERR_CANCELLED, or were dropped by the caller.
     */
    uint64_t cancelled;
    /**
     * Those of cancelled that can still touch memory.
     */
    uint64_t draining;
    /**
     * Transfers that have not ended.
     */
    uint64_t inflight;
    /**
     * Bytes of writes that were done.
     */
    uint64_t bytes_written;
    /**
     * Bytes of reads that were done.
     */
    uint64_t bytes_read;
    /**
     * Messages that were sent, with reads and alone.
     */
    uint64_t notifs_sent;
    /**
     * Messages that dt_get_new_notifs has handed out.
     */
    uint64_t notifs_received;
    /**
     * Calls of dt_poll and dt_wait.
     */
    uint64_t polls;
    /**
     * Peers that are known now, faulted ones included.
     */
    uint64_t peers;
    /**
     * How often there was no room for a message, here or at a peer, and what came and was thrown
     * away because no transport would send it.
     */
    uint64_t notifs_refused;
} dt_stats;

/**
 * Takes one message: one line of UTF-8 without a newline, valid during the call only. user is what
 * was given to dt_set_log_callback.
 *
 * It is called from any thread that is inside a library call, also from several at the same time,
 * when that call has done its work and is about to return. It may call the library, except that
 * dt_set_log_callback is ignored there, and that messages which arise inside the callback are
 * dropped. It must return: no C++ exception, no longjmp.
 */
typedef void (*dt_log_fn)(dt_log_level level, const char *message, void *user);

/**
 * Success.
 */
#define DT_OK 0

/**
 * An argument is malformed: NULL, zero, misaligned, not UTF-8, an unknown enum value, garbage. The
 * caller has to change the call.
 */
#define DT_ERR_INVALID_ARG -1

/**
 * A block index is not below the number of blocks of its side. Nothing was moved.
 */
#define DT_ERR_OUT_OF_RANGE -2

/**
 * No peer or transfer has this name.
 */
#define DT_ERR_NOT_FOUND -3

/**
 * Each argument is well-formed, but they do not fit together or to this library: fingerprint, block
 * length, backend, host, version, or a range that the metadata does not cover.
 */
#define DT_ERR_INCOMPATIBLE -4

/**
 * The caller's buffer is too small. The size needed was written.
 */
#define DT_ERR_BUFFER_TOO_SMALL -5

/**
 * The transport was closed by dt_close.
 */
#define DT_ERR_CLOSED -6

/**
 * The backend or the operating system reported a failure that no other code names.
 */
#define DT_ERR_BACKEND -7

/**
 * What this needs is missing: a library, a plugin, a permission. dt_last_error says which.
 */
#define DT_ERR_UNAVAILABLE -8

/**
 * The peer's process is gone or has closed its transport, or the peer is faulted. Remove or add
 * the peer again; the library never reconnects by itself.
 */
#define DT_ERR_PEER_LOST -9

/**
 * The transfer was cancelled by the caller: with its peer, or by dt_cancel.
 */
#define DT_ERR_CANCELLED -10

/**
 * The time that the caller allowed has run out.
 */
#define DT_ERR_TIMEOUT -11

/**
 * Not possible now. Poll, then try again.
 */
#define DT_ERR_BUSY -12

/**
 * Memory, file descriptors or other bounded resources ran out.
 */
#define DT_ERR_NO_MEMORY -13

/**
 * The handle was made before a fork() and used in the child.
 */
#define DT_ERR_FORKED -14

/**
 * A fault of this library. The handle, if one was given, refuses all further work: destroy it.
 */
#define DT_ERR_INTERNAL -15

/**
 * The bytes are in the local blocks. The message of the read, if it has one, is on its way and
 * needs no further calls of this side.
 */
#define DT_XFER_DONE 0

/**
 * In progress.
 */
#define DT_XFER_PROC 1

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The name of a status, for instance "DT_ERR_TIMEOUT".
 *
 * @param status  any integer.
 * @return a static string, never NULL; "DT_ERR_UNKNOWN" for a number that is no status.
 */
const char *dt_status_str(dt_status status);

/**
 * The version of the library that is running, which may be newer than this header. (The number is
 * made otherwise than DT_ABI_VERSION: do not compare the two.)
 *
 * @return major << 16 | minor << 8 | patch.
 */
uint32_t dt_version(void);

/**
 * What went wrong in the last call that failed on the calling thread: one line of UTF-8, shorter
 * than 512 bytes, that names the argument, the value and the limit, and where there is one, the
 * remedy. The text is for people; programs decide by status.
 *
 * A call that succeeds leaves it as it was. Each thread has its own.
 *
 * @return never NULL; "" if nothing has failed on this thread yet. The memory is the library's and
 *         is rewritten by the next call that fails on this thread; it goes away with the thread.
 */
const char *dt_last_error(void);

/**
 * Makes a transport for a region: num_blocks blocks of block_len bytes, one after the other, block
 * i at base + i * block_len.
 *
 * The region is the caller's memory. The library never frees it. It must stay mapped, readable and
 * writable, until dt_close has returned DT_OK or dt_destroy has returned. Nothing of it is read or
 * written before the first transfer.
 *
 * @param base        start of the region, not NULL; alignment does not matter.
 * @param num_blocks  number of blocks, at least 1. Block indexes are 32 bits wide, so that blocks
 *                    from 2^32 on cannot be named.
 * @param block_len   bytes of one block, at least 1; num_blocks * block_len must fit the address
 *                    space.
 * @param options     see dt_options; NULL: all defaults. It is only read during the call.
 * @param out         where the handle goes, written on DT_OK only. The caller owns it and gives it
 *                    to dt_destroy.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: base or out is NULL; a number is 0 or too large; options are malformed;
 *   config_json is no JSON object; the region is not mapped for reading and writing, or not as
 *   region_fd says; the environment variable DT_BACKEND is needed and holds nonsense
 * - DT_ERR_INCOMPATIBLE: the options are for another major version, or set what this version does
 *   not know
 * - DT_ERR_UNAVAILABLE: the backend asked for cannot be loaded or is not permitted
 * - DT_ERR_BACKEND: the operating system or the backend refused
 * - DT_ERR_NO_MEMORY: memory or file descriptors ran out
 * - DT_ERR_INTERNAL
 */
dt_status dt_create(void *base,
                    size_t num_blocks,
                    size_t block_len,
                    const struct dt_options *options,
                    struct dt_transport **out);

/**
 * Closes a transport: refuses new work, cancels what is in flight, gives up peers and
 * registrations, and waits until nothing of this transport touches the region any more. Ids that
 * were not reported yet end here and are never reported.
 *
 * On DT_OK the library neither reads nor writes the region again, and its file descriptors,
 * mappings and threads are gone: the caller may unmap the region in the next line. With the LOCAL
 * backend that holds for peers too: closing revokes their access, what a peer was writing or
 * reading has ended when this call returns DT_OK, and later attempts fail on the peer's side with
 * DT_ERR_PEER_LOST. With NIXL the engine decides: UCX over shared memory lets a peer read and
 * write these addresses of this process until it learns of the close. Nothing that matters may
 * come to lie there before all peers have removed this one.
 *
 * With NIXL it also waits until messages that were sent have arrived, for which their receivers
 * have to poll.
 *
 * On DT_ERR_TIMEOUT something could still touch the region (or, with NIXL, a message has not
 * arrived; dt_last_error says which): keep it mapped, then call again or call dt_destroy.
 * dt_last_error names what was waited for, with LOCAL the process that was in the middle of a
 * copy. The transport is closed for every other purpose.
 *
 * Calling it again is DT_OK, also from several threads. A dt_wait that is under way in another
 * thread ends early with DT_ERR_CLOSED. Afterwards every function on the handle returns
 * DT_ERR_CLOSED, except dt_close, dt_destroy, dt_get_stats and the accessors.
 *
 * @param t           the transport.
 * @param timeout_ms  longest time to wait, in milliseconds; 0: try once.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: t is not a transport
 * - DT_ERR_TIMEOUT
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_close(struct dt_transport *t, uint32_t timeout_ms);

/**
 * Closes a transport if that was not done yet, by force where needed, and frees it. It must be the
 * last use of the handle: no other thread may be inside a call on it, nor start one.
 *
 * The region may be unmapped when it returns. With LOCAL its addresses are safe to use again at
 * once (with NIXL see dt_close), but there is one case that no library can prevent. If dt_close
 * had to return DT_ERR_TIMEOUT with the LOCAL backend, then a peer process stands still (SIGSTOP,
 * a debugger, a frozen cgroup) in the middle of copying one piece of at most 1 MiB. If that peer
 * has the region mapped, it may write the rest of that one piece into the same memory file when it
 * runs again, and nothing after it; by process_vm it writes nothing more. dt_destroy waits at most
 * 1 s more for such peers, then logs an error that names one. A caller that wants to use the
 * memory file again, and not only the addresses, kills the process first.
 *
 * In a forked child it gives back what the child has, and leaves the parent's alone.
 *
 * @param t  the transport, or NULL, which does nothing. What is no transport is left alone, and
 *           dt_last_error says so.
 */
void dt_destroy(struct dt_transport *t);

/**
 * Address of the region, as given to dt_create: what a peer needs for dt_add_remote_peer.
 *
 * @param t  the transport; closed ones answer too.
 * @return the address; 0 if t is not a transport.
 */
uint64_t dt_base_addr(const struct dt_transport *t);

/**
 * Number of blocks of the region, as given to dt_create.
 *
 * @param t  the transport; closed ones answer too.
 * @return the number; 0 if t is not a transport.
 */
size_t dt_num_blocks(const struct dt_transport *t);

/**
 * Bytes of one block, as given to dt_create.
 *
 * @param t  the transport; closed ones answer too.
 * @return the number; 0 if t is not a transport.
 */
size_t dt_block_len(const struct dt_transport *t);

/**
 * Fingerprint of the model configuration, see dt_compute_fingerprint.
 *
 * @param t  the transport; closed ones answer too.
 * @return 16 lower-case hex digits, or "" if there was no configuration or if t is not a
 *         transport. Never NULL. Valid until dt_destroy.
 */
const char *dt_config_fingerprint(const struct dt_transport *t);

/**
 * Name of this node: the one from the options, or the one that was generated.
 *
 * @param t  the transport; closed ones answer too.
 * @return the name; "" if t is not a transport. Never NULL. Valid until dt_destroy.
 */
const char *dt_agent_name(const struct dt_transport *t);

/**
 * The backend that serves this transport.
 *
 * @param t  the transport; closed ones answer too.
 * @return never DT_BACKEND_AUTO for a transport; DT_BACKEND_AUTO if t is not a transport.
 */
dt_backend dt_backend_kind(const struct dt_transport *t);

/**
 * Computes the fingerprint of a model configuration. Two nodes whose fingerprints differ hold
 * different things in their blocks and must not exchange them.
 *
 * It is the first 16 hex digits of the SHA-256 of the text that Python's
 * json.dumps(json.loads(config_json), sort_keys=True, separators=(",", ":")) gives, byte for byte,
 * for every text that Python's json.loads takes as an object, NaN and Infinity included. Not
 * taken: integers above 4300 digits, a byte order mark, nesting beyond a limit of at least 900.
 *
 * @param config_json  the text of a JSON object. NULL and an empty object give "".
 * @param out          room for 17 bytes: 16 lower-case hex digits and a NUL, or "". Written on
 *                     DT_OK only.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: out is NULL; or config_json is not the text of an object, and
 *   dt_last_error says at which position
 * - DT_ERR_INTERNAL
 */
dt_status dt_compute_fingerprint(const char *config_json, char out[17]);

/**
 * True if nodes with these two fingerprints may exchange blocks: they are equal, or at least one
 * of them is empty (nothing is known).
 *
 * @param a  a fingerprint; NULL counts as "".
 * @param b  the other one; NULL counts as "".
 * @return true or false; false as well if one of them is not UTF-8.
 */
bool dt_fingerprints_compatible(const char *a, const char *b);

/**
 * Gives the metadata that a peer needs to reach this transport. Send it there by whatever control
 * plane you have, together with dt_base_addr, dt_num_blocks and dt_block_len. It does not change
 * during the life of the transport.
 *
 * To ask for the size, pass NULL and 0.
 *
 * @param t    the transport.
 * @param buf  where the bytes go; NULL is allowed if cap is 0. Untouched unless DT_OK is returned.
 * @param cap  bytes of room at buf.
 * @param len  set to the bytes needed, on DT_OK and on DT_ERR_BUFFER_TOO_SMALL.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: t is not a transport; len is NULL; buf is NULL and cap is not 0
 * - DT_ERR_BUFFER_TOO_SMALL: cap is less than *len
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_get_agent_metadata(struct dt_transport *t, void *buf, size_t cap, size_t *len);

/**
 * Makes a peer known, so that blocks can be written to it and read from it. The peer does not have
 * to know us. The time and the memory that this takes do not grow with num_blocks.
 *
 * A peer id that is known already is replaced: the old registration is removed as by
 * dt_remove_remote_peer, and nothing of it is used again. That is how a peer that was restarted is
 * met, also under the same agent name. If adding fails, everything is as before, the old
 * registration included.
 *
 * LOCAL needs the right to open /proc/PID/fd of the peer: the same user and group, and a peer that
 * is dumpable (PR_SET_DUMPABLE) and has no capabilities that this process lacks, or
 * CAP_SYS_PTRACE; both processes in one PID namespace; Linux 5.3 or newer, and a seccomp profile
 * that permits pidfd_open.
 *
 * Adding oneself works with LOCAL (and is DT_ERR_INVALID_ARG with NIXL).
 *
 * @param t               the transport.
 * @param peer_id         the name that this caller gives to the peer, 1 to 1000 bytes of UTF-8.
 * @param agent_metadata  the bytes that dt_get_agent_metadata gave to the peer. They are checked
 *                        as what a stranger sends.
 * @param metadata_len    their number.
 * @param base_addr       the peer's dt_base_addr, or the address of a later block of its region.
 * @param num_blocks      number of the peer's blocks from there on, at least 1; it may differ from
 *                        ours.
 * @param block_len       bytes of one block; must equal ours, and with LOCAL that which the peer's
 *                        transport was made with.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL; peer_id is empty, too long or not
 *   UTF-8; the metadata is malformed; a number is 0 or the range leaves the address space
 * - DT_ERR_INCOMPATIBLE: block_len differs; the metadata comes from another host, PID namespace,
 *   backend or format version; the range is not inside what the metadata describes
 * - DT_ERR_UNAVAILABLE: the operating system does not let this process reach the peer's memory;
 *   dt_last_error names the missing permission
 * - DT_ERR_PEER_LOST: the peer's process is gone, or it has closed its transport. With NIXL the
 *   first transfer finds that out; or this call does, with DT_ERR_INCOMPATIBLE, where UCX looks for
 *   the process at once: it does not tell one that has ended from one that it does not reach
 * - DT_ERR_BUSY: with a backend that cannot hold the old registration, which still touches
 *   memory, beside the new one. Poll and try again. Neither LOCAL nor NIXL returns it now
 * - DT_ERR_NO_MEMORY: memory, file descriptors, or the peer's room for connections ran out
 * - DT_ERR_BACKEND: the operating system or the backend refused
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_add_remote_peer(struct dt_transport *t,
                             const char *peer_id,
                             const void *agent_metadata,
                             size_t metadata_len,
                             uint64_t base_addr,
                             size_t num_blocks,
                             size_t block_len);

/**
 * Forgets a peer: refuses new work for it at once and cancels its transfers.
 *
 * Each of its ids that was not reported yet is reported once by a later dt_poll or dt_wait, for
 * this peer id (also after the id was added again) or for every peer, when it has stopped touching
 * memory: with its outcome if that was known already, otherwise as failed with DT_ERR_CANCELLED.
 * The resources of the peer are released then. This call does not wait for it.
 *
 * With NIXL, UCX keeps sockets of an endpoint that was closed: 1 on each side when it uses what it
 * likes best on one host, 2 with UCX_TLS=tcp, until one of both transports is closed or its
 * process ends. An add that NIXL refuses costs the same. So do not remove and add a peer that is
 * well again and again.
 *
 * @param t        the transport.
 * @param peer_id  the name given to dt_add_remote_peer.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: t is not a transport; peer_id is NULL, empty, too long or not UTF-8
 * - DT_ERR_NOT_FOUND: no peer has this id
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_remove_remote_peer(struct dt_transport *t, const char *peer_id);

/**
 * Tells how a peer is. A peer is faulted by one decisive error (its process is gone, or it has
 * closed its transport) or by three transfers that failed in a row with no success between. Work
 * for a faulted peer is refused with DT_ERR_PEER_LOST until it is removed or added again. With
 * LOCAL the death of a peer is noticed by dt_poll and dt_wait, also with nothing in flight; with
 * NIXL by the transfers that are in flight, or else by the next one.
 *
 * @param t        the transport.
 * @param peer_id  the name given to dt_add_remote_peer.
 *
 * @return
 * - DT_OK: the peer is healthy
 * - DT_ERR_INVALID_ARG: t is not a transport; peer_id is NULL, empty, too long or not UTF-8
 * - DT_ERR_NOT_FOUND: no peer has this id
 * - DT_ERR_CLOSED, DT_ERR_FORKED, DT_ERR_INTERNAL: about the call
 * - any other status: the peer is faulted, and this is why: DT_ERR_PEER_LOST, or the status of the
 *   last of its failed transfers. dt_last_error has the details
 */
dt_status dt_peer_status(struct dt_transport *t, const char *peer_id);

/**
 * Copies all that a peer must know of this transport in one blob: backend, fingerprint of the
 * configuration, address, number and length of the blocks, and the agent metadata. It has a
 * version and a check sum. The same bytes on every call.
 *
 * @param t    the transport.
 * @param buf  where the blob goes; NULL is allowed if cap is 0.
 * @param cap  bytes at buf. About 1 KiB is enough; ask for the size.
 * @param len  set to the size needed, also on DT_ERR_BUFFER_TOO_SMALL.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: t is not a transport; len is NULL; buf is NULL with a cap that is not 0
 * - DT_ERR_BUFFER_TOO_SMALL: buf is untouched
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_export_handshake(struct dt_transport *t, void *buf, size_t cap, size_t *len);

/**
 * Checks a blob of dt_export_handshake of another transport as a whole, then does what
 * dt_add_remote_peer does with what it says. The check sum finds damage, not forgery: the blob is
 * untrusted input.
 *
 * @param t        the transport.
 * @param peer_id  the name for the peer, as for dt_add_remote_peer.
 * @param blob     its bytes.
 * @param len      their number.
 *
 * @return
 * - DT_OK: the peer is known
 * - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL; peer_id is empty, too long or not
 *   UTF-8; the blob is malformed or damaged
 * - DT_ERR_INCOMPATIBLE: the blob was made by a newer library, or the two nodes disagree in
 *   backend, fingerprint or block length; dt_last_error names the field and both values
 * - any other status of dt_add_remote_peer
 */
dt_status dt_import_handshake(struct dt_transport *t,
                              const char *peer_id,
                              const void *blob,
                              size_t len);

/**
 * Starts to copy local block local_idxs[k] to the peer's block remote_idxs[k], for each k below
 * count.
 *
 * Everything is checked first, and if anything is wrong, nothing is moved and no id exists. The
 * call never waits and never copies in bulk: later calls of dt_poll or dt_wait move the bytes, all
 * but those of a few small blocks (64 KiB together) with nothing before them, which may be copied
 * at once. It takes time for each index, whatever the length of a block. Neighbouring blocks are
 * merged, so lists in ascending order are the fastest. An index may be repeated; where remote_idxs
 * repeats, one of the blocks written there is found, and it is not said which one. When a
 * transport is its own peer, no block may be both a source and a destination of one transfer:
 * what such a destination holds in the end is not said.
 *
 * Until the id has been reported, the local blocks must not be changed, and the peer must not use
 * the remote ones. Transfers are not ordered among each other.
 *
 * @param t            the transport.
 * @param peer_id      the name given to dt_add_remote_peer.
 * @param local_idxs   count indexes, each below dt_num_blocks. The array is the caller's again
 *                     when the call returns; no thread may change it meanwhile.
 * @param remote_idxs  count indexes, each below the num_blocks of the peer; as above.
 * @param count        number of blocks, at least 1.
 * @param user_data    any number; it comes back in the completion.
 * @param out          where the id goes, written on DT_OK only.
 *
 * @return
 * - DT_OK: the transfer is in flight. It ends in exactly one way: reported by dt_poll or dt_wait,
 *   dropped by dt_cancel, or ended by dt_close
 * - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL or misaligned; count is 0, or so
 *   large that the bytes cannot be counted; peer_id is empty, too long or not UTF-8
 * - DT_ERR_OUT_OF_RANGE: an index is too large; dt_last_error names it
 * - DT_ERR_NOT_FOUND: no peer has this id
 * - DT_ERR_PEER_LOST: the peer is gone or faulted
 * - DT_ERR_NO_MEMORY
 * - DT_ERR_BACKEND: the backend refused
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_write_blocks(struct dt_transport *t,
                          const char *peer_id,
                          const uint32_t *local_idxs,
                          const uint32_t *remote_idxs,
                          size_t count,
                          uint64_t user_data,
                          dt_xfer_id *out);

/**
 * Starts to copy the peer's block remote_idxs[k] to local block local_idxs[k], for each k below
 * count. As dt_write_blocks in everything but the direction: local blocks are written, the peer's
 * are read. Until the id has been reported, the local blocks must not be used, and the peer must
 * not change the remote ones.
 *
 * @param t            the transport.
 * @param peer_id      the name given to dt_add_remote_peer.
 * @param local_idxs   as for dt_write_blocks.
 * @param remote_idxs  as for dt_write_blocks.
 * @param count        number of blocks, at least 1.
 * @param user_data    any number; it comes back in the completion.
 * @param out          where the id goes, written on DT_OK only.
 *
 * @return
 * - DT_OK: the transfer is in flight, as for dt_write_blocks
 * - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL or misaligned; count is 0, or so
 *   large that the bytes cannot be counted; peer_id is empty, too long or not UTF-8
 * - DT_ERR_OUT_OF_RANGE: an index is too large; dt_last_error names it
 * - DT_ERR_NOT_FOUND: no peer has this id
 * - DT_ERR_PEER_LOST: the peer is gone or faulted
 * - DT_ERR_NO_MEMORY
 * - DT_ERR_BACKEND: the backend refused
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_read_blocks(struct dt_transport *t,
                         const char *peer_id,
                         const uint32_t *local_idxs,
                         const uint32_t *remote_idxs,
                         size_t count,
                         uint64_t user_data,
                         dt_xfer_id *out);

/**
 * Drives all work for a bounded time (dt_options.poll_budget_us) and reports transfers that have
 * ended, each one once. It never waits for a peer. Work of every peer is driven, whichever one is
 * named, also with cap 0 and with nothing in flight (with LOCAL the death of a peer is noticed
 * then, too). With NIXL over sockets a call can take longer: a peer that keeps up is sent all that
 * UCX holds for it, some 8 MiB at most.
 *
 * When an id is reported, with success or failure, the library will not read or write the blocks
 * of its transfer again on either side.
 *
 * @param t        the transport.
 * @param peer_id  report only transfers of this peer; those of others stay for their own poll. A
 *                 name that is not known (any more) is not an error. NULL: every peer.
 * @param buf      where completions go; NULL is allowed if cap is 0. Elements from *count on are
 *                 untouched.
 * @param cap      number of elements at buf. What does not fit stays for the next call.
 * @param count    set to the number of completions that were written, on DT_OK only.
 *
 * @return
 * - DT_OK, also if nothing has ended and if transfers have failed: each completion has its own
 *   status
 * - DT_ERR_INVALID_ARG: t is not a transport; count is NULL; buf is misaligned, or NULL with a cap
 *   that is not 0; peer_id is empty, too long or not UTF-8. Nothing was reported
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_poll(struct dt_transport *t,
                  const char *peer_id,
                  struct dt_completion *buf,
                  size_t cap,
                  size_t *count);

/**
 * Polls as dt_poll does until something was reported or the time has run out. Other threads may
 * use the transport meanwhile. With cap 0 it returns when there is something to report.
 *
 * It sleeps between polls, the longer the less has happened: from a second after the last news on,
 * and with nothing in flight, waiting costs less than 1 % of a core. With NIXL over sockets, what
 * a peer begins after a second of silence can wait 10 ms for this side.
 *
 * @param t           the transport.
 * @param peer_id     as for dt_poll.
 * @param buf         as for dt_poll.
 * @param cap         as for dt_poll.
 * @param timeout_ms  longest time to wait, in milliseconds; 0: as dt_poll.
 * @param count       set to the number of completions that were written, on DT_OK only; 0 if the
 *                    time has run out.
 *
 * @return
 * - DT_OK, also if the time has run out
 * - DT_ERR_INVALID_ARG: as for dt_poll
 * - DT_ERR_CLOSED: also if another thread has closed the transport meanwhile
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_wait(struct dt_transport *t,
                  const char *peer_id,
                  struct dt_completion *buf,
                  size_t cap,
                  uint32_t timeout_ms,
                  size_t *count);

/**
 * Cancels transfers. It never waits.
 *
 * DT_CANCEL_IMMEDIATE: the ids are forgotten at once and never reported. A transfer that cannot be
 * stopped now drains inside the library and is counted in dt_stats.draining; its blocks may still
 * be touched until then.
 *
 * DT_CANCEL_WAIT: ids that have ended, or can be stopped now, are dropped and never reported. The
 * others are written to still_inflight, stay in flight, and are reported by dt_poll exactly once,
 * as done if they completed. An id that is not in that list will not touch memory again.
 *
 * With LOCAL every transfer stops at once, so that both modes do the same and no list is ever
 * filled. A write that was stopped may have written some of its blocks.
 *
 * A posted read (dt_post_read) that is dropped is released, also if it had ended; one that stays
 * in flight ends as DT_XFER_DONE, or otherwise, and is released by the caller.
 *
 * Ids that are unknown or have been reported, and repetitions of an id, are ignored.
 *
 * @param t               the transport.
 * @param ids             count ids; NULL is allowed if count is 0.
 * @param count           their number; 0 is allowed.
 * @param mode            see above.
 * @param still_inflight  room for count ids; it may be the array ids itself. May be NULL for
 *                        DT_CANCEL_IMMEDIATE, and if count is 0.
 * @param still_count     set to the number of ids in still_inflight, on DT_OK only. May be NULL
 *                        for DT_CANCEL_IMMEDIATE, which sets it to 0.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: t is not a transport; a pointer is misaligned, or NULL where it is needed;
 *   mode is unknown. Nothing was cancelled
 * - DT_ERR_NO_MEMORY: nothing was cancelled
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_cancel(struct dt_transport *t,
                    const dt_xfer_id *ids,
                    size_t count,
                    dt_cancel_mode mode,
                    dt_xfer_id *still_inflight,
                    size_t *still_count);

/**
 * Copies the memory descriptor of the transport: what peers that read from it must know of its
 * blocks. It is MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md): an array
 * with one array [address, length in bytes, device id 0] for each block, every number in its
 * shortest form, as Python's msgspec.msgpack.encode makes it of a list of tuples. It takes 7 to 17
 * bytes a block; the size alone is known without making it.
 *
 * @param t    the transport.
 * @param buf  where the bytes go; NULL is allowed if cap is 0.
 * @param cap  bytes at buf.
 * @param len  set to the size needed, also on DT_ERR_BUFFER_TOO_SMALL.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: t is not a transport; len is NULL; buf is NULL with a cap that is not 0
 * - DT_ERR_INCOMPATIBLE: the region has 2^32 blocks or more, which MessagePack cannot list
 * - DT_ERR_BUFFER_TOO_SMALL: buf is untouched
 * - DT_ERR_NO_MEMORY
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_get_mem_descriptor(struct dt_transport *t, void *buf, size_t cap, size_t *len);

/**
 * Makes an agent known by what it says of itself: its metadata, and the memory descriptor of the
 * blocks that may be read. The blocks may lie in any order, with gaps between them; indexes of a
 * transfer count them in the order of the list. The name that the agent gave itself becomes the
 * peer id for every other function, dt_remove_remote_peer, dt_peer_status and dt_write_blocks
 * included. A peer id that is known already gets a new registration, as with dt_add_remote_peer.
 *
 * Both blobs are untrusted input: they are checked as a whole, in time that grows with their
 * length, before anything is remembered. A list of blocks that follow on each other takes no
 * memory, any other one takes 8 bytes a block.
 *
 * @param t               the transport.
 * @param agent_metadata  what dt_get_agent_metadata, or NIXL's get_agent_metadata, gave there.
 * @param metadata_len    its bytes.
 * @param mem_descriptor  what dt_get_mem_descriptor gave there, or the same made by another program
 *                        in any form that MessagePack allows.
 * @param descriptor_len  its bytes.
 * @param agent_name      where the agent's name goes, NUL-terminated; NULL is allowed if name_cap
 *                        is 0.
 * @param name_cap        bytes at agent_name.
 * @param name_len        set to the bytes of the name, NUL included, on DT_OK and on
 *                        DT_ERR_BUFFER_TOO_SMALL.
 *
 * @return
 * - DT_OK: the agent is known
 * - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL where it is needed; a blob is
 *   malformed; the name in the metadata is empty, longer than 1000 bytes, or has a NUL in it; an
 *   address is 0 or goes beyond 64 bits; with NIXL, the agent is this transport
 * - DT_ERR_INCOMPATIBLE: a block has another length than the local ones, lies on another device,
 *   or is not memory that the agent's metadata speaks of; the metadata is of another backend,
 *   version or host
 * - DT_ERR_BUFFER_TOO_SMALL: name_cap is too small; nothing was added, name_len says what is
 *   needed
 * - DT_ERR_BUSY: as for dt_add_remote_peer
 * - DT_ERR_PEER_LOST: the agent's process is gone
 * - DT_ERR_UNAVAILABLE: a permission is missing
 * - DT_ERR_NO_MEMORY
 * - DT_ERR_BACKEND
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_add_remote_agent(struct dt_transport *t,
                              const void *agent_metadata,
                              size_t metadata_len,
                              const void *mem_descriptor,
                              size_t descriptor_len,
                              char *agent_name,
                              size_t name_cap,
                              size_t *name_len);

/**
 * Starts to copy block remote_idxs[k] of an agent to local block local_idxs[k], for each k below
 * count, as dt_read_blocks does; but the read belongs to the id that is returned: dt_poll and
 * dt_wait drive it and never report it. Ask with dt_check_xfer_state, and free it in the end with
 * dt_release_xfer.
 *
 * When all bytes have been read, notif_msg goes to the agent, which finds it once with
 * dt_get_new_notifs. It never goes for a read that failed, was cancelled, or was released before
 * the library had found it complete. Messages of one transport to one agent, under one peer id,
 * come in the order in which their reads completed or dt_send_notif was called.
 *
 * While the agent has no room for the message, or this process has no memory or file descriptor to
 * send it with, the read stays DT_XFER_PROC, though its bytes are there; polling sends it when it
 * can. A read without a message does not wait.
 *
 * With NIXL over sockets, UCX aborts the agent's process if this one is killed in the middle of a
 * read.
 *
 * @param t            the transport.
 * @param agent_name   a peer id: a name that dt_add_remote_agent gave, or an id that was given to
 *                     dt_add_remote_peer.
 * @param local_idxs   as for dt_read_blocks.
 * @param remote_idxs  as for dt_read_blocks.
 * @param count        number of blocks, at least 1.
 * @param notif_msg    notif_len bytes of any value, which are copied; NULL is allowed if notif_len
 *                     is 0.
 * @param notif_len    0: no message; otherwise 1 to 65536.
 * @param out          where the id goes, written on DT_OK only.
 *
 * @return
 * - DT_OK: the read has started; release it when it is not needed any more
 * - DT_ERR_INVALID_ARG: as for dt_read_blocks; notif_msg is NULL or notif_len too large
 * - DT_ERR_OUT_OF_RANGE: an index is too large; dt_last_error names it
 * - DT_ERR_NOT_FOUND: no peer has this name
 * - DT_ERR_PEER_LOST: the peer is gone or faulted
 * - DT_ERR_NO_MEMORY
 * - DT_ERR_BACKEND: the backend refused
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_post_read(struct dt_transport *t,
                       const char *agent_name,
                       const uint32_t *local_idxs,
                       const uint32_t *remote_idxs,
                       size_t count,
                       const void *notif_msg,
                       size_t notif_len,
                       dt_xfer_id *out);

/**
 * Drives all work as dt_poll does, then tells where a posted read stands.
 *
 * @param t      the transport.
 * @param id     what dt_post_read gave.
 * @param state  set to the state, on DT_OK only: DT_XFER_PROC; DT_XFER_DONE; or why the read
 *               failed: DT_ERR_CANCELLED (with its peer), DT_ERR_PEER_LOST, DT_ERR_BACKEND, or
 *               another status. In the last case the local blocks hold old bytes, new bytes, or
 *               both.
 *
 * @return
 * - DT_OK, also if the read has failed
 * - DT_ERR_INVALID_ARG: t is not a transport; state is NULL
 * - DT_ERR_NOT_FOUND: no posted read has this id, or it was released
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_check_xfer_state(struct dt_transport *t, dt_xfer_id id, dt_xfer_state *state);

/**
 * The name of a state.
 *
 * @param state  any integer.
 * @return a static string, never NULL: "DONE", "PROC", or what dt_status_str says.
 */
const char *dt_xfer_state_str(dt_xfer_state state);

/**
 * Frees a posted read; its id is unknown afterwards. One that is still in progress is given up as
 * by dt_cancel with DT_CANCEL_IMMEDIATE: no message goes to the agent, and what cannot be stopped
 * drains inside the library, so that its local blocks may still be written until dt_stats.draining
 * has fallen.
 *
 * @param t   the transport.
 * @param id  what dt_post_read gave.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: t is not a transport
 * - DT_ERR_NOT_FOUND: no posted read has this id, or it was released
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_release_xfer(struct dt_transport *t, dt_xfer_id id);

/**
 * Drives all work as dt_poll does, then hands out messages that have come: of reads of this
 * transport's blocks that have completed (dt_post_read), and of dt_send_notif. Each is handed out
 * once; those of one sender come in the order in which it sent them. The sender need not be known
 * here. Messages of other programs over NIXL may have any length.
 *
 * What is not asked for is kept: with LOCAL 1 MiB of each sender, which is told DT_ERR_BUSY then,
 * and loses nothing; with NIXL, which cannot make senders wait, 65536 messages or 64 MiB in all,
 * and what comes then is thrown away. dt_stats.notifs_refused counts both.
 *
 * @param t           the transport.
 * @param buf         where messages go; NULL is allowed if cap is 0. Elements from *count on are
 *                    untouched.
 * @param cap         number of elements at buf.
 * @param arena       where names and bytes of the messages go; NULL is allowed if arena_cap is 0.
 *                    What buf points to is valid until the caller uses the arena for something
 *                    else.
 * @param arena_cap   bytes at arena. A message needs those of the sender's name, 1, and its own.
 *                    What does not fit stays for the next call.
 * @param count       set to the number of messages, on DT_OK only.
 * @param arena_used  set to the bytes used, on DT_OK, and to the bytes that the next message needs,
 *                    on DT_ERR_BUFFER_TOO_SMALL.
 *
 * @return
 * - DT_OK, also if no message has come
 * - DT_ERR_INVALID_ARG: t is not a transport; a pointer is misaligned, or NULL where it is needed.
 *   Nothing was handed out
 * - DT_ERR_BUFFER_TOO_SMALL: the arena is too small for the next message, which stays
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_get_new_notifs(struct dt_transport *t,
                            struct dt_notif *buf,
                            size_t cap,
                            void *arena,
                            size_t arena_cap,
                            size_t *count,
                            size_t *arena_used);

/**
 * Sends a message that goes with no read. It never waits.
 *
 * On DT_OK the message reaches the peer once, after all that were sent to it before, even if this
 * transport is not used any more, is closed or destroyed, or its process ends. A peer that dies
 * takes what it has not asked for with it. With NIXL a process that ends without dt_close can take
 * the last messages with it, those that the peer had not taken in by then.
 *
 * @param t           the transport.
 * @param agent_name  a peer id, as for dt_post_read. That is the name that this side gave to the
 *                    peer; dt_notif.agent_name is the one that a sender gave to itself.
 * @param msg         len bytes of any value, which are copied.
 * @param len         1 to 65536.
 *
 * @return
 * - DT_OK: the message is on its way
 * - DT_ERR_INVALID_ARG: t is not a transport; agent_name is NULL, empty, too long or not UTF-8;
 *   msg is NULL; len is 0 or too large
 * - DT_ERR_NOT_FOUND: no peer has this name
 * - DT_ERR_BUSY: the peer has no room for messages now, because it has not asked for those that it
 *   has; messages of reads wait for that; or, with NIXL, the connection is still being made, for
 *   which the peer has to poll, too. Nothing was sent; poll, and try again
 * - DT_ERR_PEER_LOST: the peer is gone or faulted
 * - DT_ERR_NO_MEMORY
 * - DT_ERR_UNAVAILABLE: a permission is missing
 * - DT_ERR_BACKEND
 * - DT_ERR_CLOSED
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_send_notif(struct dt_transport *t,
                        const char *agent_name,
                        const void *msg,
                        size_t len);

/**
 * Reads the counters. It also answers after dt_close.
 *
 * @param t    the transport.
 * @param out  a struct whose struct_size is set; every other field is written, on DT_OK only. Of a
 *             struct that is larger than the library's, the part that it does not know is set to
 *             0.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: t is not a transport; out is NULL or misaligned; struct_size is less than
 *   the first version's or more than 4096
 * - DT_ERR_FORKED
 * - DT_ERR_INTERNAL
 */
dt_status dt_get_stats(struct dt_transport *t, struct dt_stats *out);

/**
 * Sets where log messages of the whole process go. Until the first call, the environment variable
 * DT_LOG ("error", "warn", "info" or "debug") sends them to stderr, and without it there are none.
 *
 * When it returns, the callback that was set before is not running in any thread and will not be
 * called again, so that its user data may be freed. The caller must therefore not hold a lock that
 * the old callback takes.
 *
 * @param fn         the callback. NULL: no log at all, whatever DT_LOG says.
 * @param user       passed to each call of fn; may be NULL.
 * @param max_level  the least important level that is wanted; DT_LOG_OFF: none. With an unknown
 *                   level nothing is changed, and dt_last_error says so.
 */
void dt_set_log_callback(dt_log_fn fn, void *user, dt_log_level max_level);

/**
 * Allocates memory for a region that peers on the same host reach in the fastest way: zeroed,
 * backed by a memfd that is sealed against shrinking, and mapped at a multiple of 2 MiB. To use
 * it, set region_fd to *fd, region_offset to the offset of the region's base in it (0 for *base),
 * and region_has_fd.
 *
 * The memory is taken from the system here and now, in huge pages of 2 MiB, from the NUMA node
 * that the calling thread's memory comes from; that takes as long as to write all of it once. The
 * exceptions: what is left after five seconds, all of a region larger than half of the memory that
 * the system or a control group has left, what would take more than that together with others, the
 * last part of a size that is no multiple of 2 MiB, and kernels that cannot do it (before Linux
 * 6.1) or refuse memory. Such pages are small, and are taken when they are touched first: if there
 * are none left then, the system ends a process, and no call can tell. Where the kernel finds no
 * huge pages, because its memory is in pieces, small ones are taken at once.
 *
 * Memory and descriptor belong to the caller, who gives them to dt_region_free when no open
 * transport uses them any more.
 *
 * @param bytes  size, at least 1.
 * @param base   where the address goes, written on DT_OK only.
 * @param fd     where the file descriptor goes, written on DT_OK only. It is close-on-exec.
 *
 * @return
 * - DT_OK
 * - DT_ERR_INVALID_ARG: a pointer is NULL, or bytes is 0 or more than there can be
 * - DT_ERR_NO_MEMORY: the system has no memory, address space or file descriptors for it, or a
 *   limit of the process (RLIMIT_FSIZE) forbids so much
 * - DT_ERR_UNAVAILABLE: the system does not permit memory files (memfd_create)
 * - DT_ERR_BACKEND: the system refused for another reason
 * - DT_ERR_INTERNAL
 */
dt_status dt_region_alloc(size_t bytes, void **base, int32_t *fd);

/**
 * Unmaps memory of dt_region_alloc and closes its file descriptor.
 *
 * All three must be what one dt_region_alloc gave or was given: what is unmapped and closed is
 * what they name, whatever that is by now. Only when bytes is 0, or base is not where a region can
 * begin, that is seen: then nothing is unmapped or closed, and the log has a warning.
 *
 * @param base   the address that dt_region_alloc gave. NULL: nothing is done, whatever fd is.
 * @param bytes  the size that was asked for.
 * @param fd     its file descriptor; a negative one is not closed (the caller has closed it).
 */
void dt_region_free(void *base, size_t bytes, int32_t fd);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DT_H */
