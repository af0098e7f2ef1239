/* A copy that goes past the caches: what the memory itself can do. */
#ifndef NT_COPY_H
#define NT_COPY_H

#include <stddef.h>

typedef void (*nt_copy_fn)(void *to, const void *from, size_t bytes);

/* The best that this processor has, NULL if there is none here. `name` says which one. */
nt_copy_fn nt_copy_find(const char **name);
/* After the last copy: its bytes can be seen by others. */
void nt_copy_fence(void);

#endif
