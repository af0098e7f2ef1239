/* Memory descriptors by hand, as other programs may write them: MessagePack, an array of arrays
 * [address, length, device]. */
#ifndef DT_TEST_DESCRIPTOR_H
#define DT_TEST_DESCRIPTOR_H

#include <stddef.h>
#include <stdint.h>

struct list {
    uint8_t *bytes;
    size_t len;
    size_t cap;
};

/* The bytes are to be freed. */
struct list list_new(size_t cap);

/* Each fails the test if there is no room. */
void list_put(struct list *list, unsigned byte);
/* `marker`, then `size` bytes of `value` with the highest first. */
void list_put_long(struct list *list, unsigned marker, int size, uint64_t value);
/* These in the shortest form. */
void list_put_count(struct list *list, uint64_t count);
void list_put_row(struct list *list, uint64_t address, uint64_t len, uint64_t device);

#endif
