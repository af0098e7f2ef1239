#include "nt_copy.h"

#include <stdint.h>
#include <string.h>

/* Bytes that come before the first aligned one. */
#if defined(__x86_64__) || defined(__aarch64__)
static size_t align(unsigned char **to, const unsigned char **from, size_t bytes, size_t unit)
{
    size_t head = (size_t)(-(uintptr_t)*to & (unit - 1));
    if (head > bytes)
        head = bytes;
    memcpy(*to, *from, head);
    *to += head;
    *from += head;
    return bytes - head;
}
#endif

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f")))
static void copy_avx512(void *destination, const void *source, size_t bytes)
{
    unsigned char *to = destination;
    const unsigned char *from = source;
    bytes = align(&to, &from, bytes, 64);
    for (; bytes >= 256; bytes -= 256, to += 256, from += 256) {
        __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + 64);
        __m512i c = _mm512_loadu_si512(from + 128), d = _mm512_loadu_si512(from + 192);
        _mm512_stream_si512((void *)to, a);
        _mm512_stream_si512((void *)(to + 64), b);
        _mm512_stream_si512((void *)(to + 128), c);
        _mm512_stream_si512((void *)(to + 192), d);
    }
    memcpy(to, from, bytes);
}

__attribute__((target("avx2")))
static void copy_avx2(void *destination, const void *source, size_t bytes)
{
    unsigned char *to = destination;
    const unsigned char *from = source;
    bytes = align(&to, &from, bytes, 32);
    for (; bytes >= 128; bytes -= 128, to += 128, from += 128) {
        __m256i a = _mm256_loadu_si256((const void *)from);
        __m256i b = _mm256_loadu_si256((const void *)(from + 32));
        __m256i c = _mm256_loadu_si256((const void *)(from + 64));
        __m256i d = _mm256_loadu_si256((const void *)(from + 96));
        _mm256_stream_si256((void *)to, a);
        _mm256_stream_si256((void *)(to + 32), b);
        _mm256_stream_si256((void *)(to + 64), c);
        _mm256_stream_si256((void *)(to + 96), d);
    }
    memcpy(to, from, bytes);
}

nt_copy_fn nt_copy_find(const char **name)
{
    if (__builtin_cpu_supports("avx512f")) {
        *name = "AVX-512";
        return copy_avx512;
    }
    if (__builtin_cpu_supports("avx2")) {
        *name = "AVX2";
        return copy_avx2;
    }
    return NULL;
}

void nt_copy_fence(void)
{
    _mm_sfence();
}

#elif defined(__aarch64__)

static void copy_stnp(void *destination, const void *source, size_t bytes)
{
    unsigned char *to = destination;
    const unsigned char *from = source;
    bytes = align(&to, &from, bytes, 16);
    for (; bytes >= 64; bytes -= 64, to += 64, from += 64)
        __asm__ volatile("ldp q0, q1, [%1]\n\t"
                         "ldp q2, q3, [%1, #32]\n\t"
                         "stnp q0, q1, [%0]\n\t"
                         "stnp q2, q3, [%0, #32]"
                         :
                         : "r"(to), "r"(from)
                         : "v0", "v1", "v2", "v3", "memory");
    memcpy(to, from, bytes);
}

nt_copy_fn nt_copy_find(const char **name)
{
    *name = "stnp";
    return copy_stnp;
}

void nt_copy_fence(void)
{
    __asm__ volatile("dmb ishst" ::: "memory");
}

#else

nt_copy_fn nt_copy_find(const char **name)
{
    (void)name;
    return NULL;
}

void nt_copy_fence(void)
{
}

#endif
