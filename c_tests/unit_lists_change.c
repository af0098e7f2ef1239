/* Lists of indexes that change while dt_write_blocks reads them, as another thread's mistake makes them: what
 * was looked at is what is used, and the transport goes on. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "descriptor.h"
#include "unit_pair.h"

enum { BLOCKS = 1500, BLOCK_LEN = 64 };

/* Each list is longer than a page; the rest of the one that changes cannot be read at first. */
static uint32_t *local, *remote, *changing;
static size_t page;
static volatile sig_atomic_t changes;

/* The first page of the list was read when the second one is. Then it no longer holds any index. */
static void change(int signal)
{
    (void)signal;
    changes++;
    mprotect((uint8_t *)changing + page, page, PROT_READ | PROT_WRITE);
    memset(changing, 0xff, page);
}

static uint32_t *list_of_pages(void)
{
    void *list = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(list != MAP_FAILED);
    return (uint32_t *)list;
}

/* Block k goes to the peer's block BLOCKS - 1 - k, whatever index that has. */
static void write_while_one_changes(const struct pair *pair, const char *peer_id, bool is_reversed)
{
    size_t count = page / sizeof *local + 100;
    dt_completion done;
    dt_xfer_id id = 0;
    CHECK(count <= BLOCKS);
    for (uint32_t k = 0; k < count; k++) {
        local[k] = k;
        remote[k] = is_reversed ? k : BLOCKS - 1 - k;
    }
    pair_fill(pair, 1);
    changes = 0;
    CHECK(mprotect((uint8_t *)changing + page, page, PROT_NONE) == 0);
    CHECK_OK(dt_write_blocks(pair->ours.t, peer_id, local, remote, count, 5, &id));
    CHECK(changes == 1 && changing[0] == UINT32_MAX);
    pair_collect(pair, peer_id, &done, 1);
    CHECK_OK(done.status);
    CHECK(done.id == id && done.bytes == count * BLOCK_LEN);
    for (size_t k = 0; k < BLOCKS; k++)
        CHECK(side_block_is(&pair->peer, BLOCKS - 1 - k,
                            (uint8_t)(1 + (k < count ? k : BLOCKS - 1 - k))));
    /* What it holds now is refused as always. */
    CHECK_STATUS(dt_write_blocks(pair->ours.t, peer_id, local, remote, count, 5, &id),
                 DT_ERR_OUT_OF_RANGE);
}

int main(void)
{
    struct pair pair = pair_open(BLOCKS, BLOCK_LEN);
    struct list blocks = list_new(1 << 16);
    struct sigaction action;
    uint8_t metadata[65536];
    char name[64];
    size_t len, name_len;

    page = (size_t)sysconf(_SC_PAGESIZE);
    local = list_of_pages();
    remote = list_of_pages();
    memset(&action, 0, sizeof action);
    action.sa_handler = change;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);

    for (int i = 0; i < 2; i++) {
        changing = i == 0 ? local : remote;
        write_while_one_changes(&pair, "peer", false);
    }

    list_put_count(&blocks, BLOCKS);
    for (size_t k = BLOCKS; k-- > 0;)
        list_put_row(&blocks, dt_base_addr(pair.peer.t) + k * BLOCK_LEN, BLOCK_LEN, 0);
    CHECK_OK(dt_get_agent_metadata(pair.peer.t, metadata, sizeof metadata, &len));
    CHECK_OK(dt_add_remote_agent(pair.ours.t, metadata, len, blocks.bytes, blocks.len, name,
                                 sizeof name, &name_len));
    for (int i = 0; i < 2; i++) {
        changing = i == 0 ? local : remote;
        write_while_one_changes(&pair, name, true);
    }

    free(blocks.bytes);
    CHECK(munmap(local, 2 * page) == 0 && munmap(remote, 2 * page) == 0);
    pair_close(&pair);
    return 0;
}
