#include "descriptor.h"

#include <stdlib.h>

#include "dt_check.h"

struct list list_new(size_t cap)
{
    struct list list = {malloc(cap), 0, cap};
    CHECK(list.bytes != NULL);
    return list;
}

void list_put(struct list *list, unsigned byte)
{
    CHECK(list->len < list->cap);
    list->bytes[list->len++] = (uint8_t)byte;
}

void list_put_long(struct list *list, unsigned marker, int size, uint64_t value)
{
    list_put(list, marker);
    for (int i = size - 1; i >= 0; i--)
        list_put(list, (unsigned)(value >> 8 * i) & 0xff);
}

static void put_number(struct list *list, uint64_t value)
{
    if (value < 128)
        list_put(list, (unsigned)value);
    else if (value <= UINT8_MAX)
        list_put_long(list, 0xcc, 1, value);
    else if (value <= UINT16_MAX)
        list_put_long(list, 0xcd, 2, value);
    else if (value <= UINT32_MAX)
        list_put_long(list, 0xce, 4, value);
    else
        list_put_long(list, 0xcf, 8, value);
}

void list_put_count(struct list *list, uint64_t count)
{
    if (count < 16)
        list_put(list, 0x90 | (unsigned)count);
    else if (count <= UINT16_MAX)
        list_put_long(list, 0xdc, 2, count);
    else
        list_put_long(list, 0xdd, 4, count);
}

void list_put_row(struct list *list, uint64_t address, uint64_t len, uint64_t device)
{
    list_put(list, 0x93);
    put_number(list, address);
    put_number(list, len);
    put_number(list, device);
}
