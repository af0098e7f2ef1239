/* The known answers of FIPS 180-4's examples, and every way to cut the input. */
#include <stdio.h>
#include <string.h>

#include "sha256.h"

static int differs(const char *text, size_t times, size_t piece, const char *want)
{
    struct sha256 hash;
    char got[65];
    size_t len = strlen(text);

    sha256_init(&hash);
    for (size_t i = 0; i < times; i++)
        for (size_t at = 0; at < len; at += piece)
            sha256_update(&hash, text + at, len - at < piece ? len - at : piece);
    sha256_hex(&hash, got);
    if (strcmp(got, want) == 0)
        return 0;
    fprintf(stderr, "%zu times \"%s\" in pieces of %zu: %s, not %s\n", times, text, piece, got,
            want);
    return 1;
}

int main(void)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static const char ten_as[] = "aaaaaaaaaa";
    int wrong = 0;

    wrong += differs("", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    for (size_t piece = 1; piece < 60; piece++) {
        wrong += differs("abc", 1, piece,
                         "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        wrong += differs(two_blocks, 1, piece,
                         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
    wrong += differs(ten_as, 100000, 10,
                     "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    return wrong != 0;
}
