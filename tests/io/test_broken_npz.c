/* SPDX-License-Identifier: MIT
 *
 * test_broken_npz.c - broken .npz archives, one by one, each with its message; the archives are built here byte by byte, so that
 * any field can be wrong.
 */
#include "io_test.h"

typedef struct zip_member {
    const char *name;
    const char *array; /* header of an .npy with 4 bytes of data; NULL: only those bytes */
    int method;        /* 0 stored, 8 deflated */
    int flags;
    uint32_t crc_change; /* added to the true value */
    int32_t packed_change, unpacked_change;
} zip_member;

#define F4 "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n"
#define U1 "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }\n"

typedef struct byte_list {
    unsigned char bytes[4096];
    size_t size;
} byte_list;

static void put(byte_list *list, const void *bytes, size_t size)
{
    assert_true(list->size + size <= sizeof list->bytes);
    if (size) memcpy(list->bytes + list->size, bytes, size);
    list->size += size;
}

static void put_number(byte_list *list, uint32_t value, size_t size) { put(list, &value, size); }

static uint32_t crc32_of(const unsigned char *bytes, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

/* The fields that local header and central directory share. */
static void put_shared(byte_list *list, const zip_member *member, uint32_t crc, size_t packed, size_t unpacked)
{
    put_number(list, 20, 2);
    put_number(list, (uint32_t)member->flags, 2);
    put_number(list, (uint32_t)member->method, 2);
    put_number(list, 33u << 16, 4);
    put_number(list, crc + member->crc_change, 4);
    put_number(list, (uint32_t)packed + (uint32_t)member->packed_change, 4);
    put_number(list, (uint32_t)unpacked + (uint32_t)member->unpacked_change, 4);
    put_number(list, (uint32_t)strlen(member->name), 2);
    put_number(list, 0, 2);
}

static void put_array(byte_list *content, const char *header)
{
    if (header) {
        put(content, "\x93NUMPY\x01\x00", 8);
        put_number(content, (uint32_t)strlen(header), 2);
        put(content, header, strlen(header));
    }
}

/* One member into the list, and its entry into the central directory. */
static void put_member(byte_list *list, byte_list *central, const zip_member *member, const byte_list *content)
{
    byte_list packed = {.size = 0};
    uint32_t crc = crc32_of(content->bytes, content->size), place = (uint32_t)list->size;
    if (member->method == 8) { /* one block of deflate that is not compressed */
        put_number(&packed, 1, 1);
        put_number(&packed, (uint32_t)content->size, 2);
        put_number(&packed, ~(uint32_t)content->size, 2);
    }
    put(&packed, content->bytes, content->size);
    put(list, "PK\x03\x04", 4);
    put_shared(list, member, crc, packed.size, content->size);
    put(list, member->name, strlen(member->name));
    put(list, packed.bytes, packed.size);
    put(central, "PK\x01\x02\x14", 6);
    put_shared(central, member, crc, packed.size, content->size);
    put(central, "\0\0\0\0\0\0\0\0\0", 10);
    put_number(central, place, 4);
    put(central, member->name, strlen(member->name));
}

static void put_end(byte_list *list, const byte_list *central, int count)
{
    size_t begin = list->size;
    put(list, central->bytes, central->size);
    put(list, "PK\x05\x06\0\0\0", 8);
    put_number(list, (uint32_t)count, 2);
    put_number(list, (uint32_t)count, 2);
    put_number(list, (uint32_t)central->size, 4);
    put_number(list, (uint32_t)begin, 4);
    put_number(list, 0, 2);
}

static void put_archive(byte_list *list, const zip_member *members, int count)
{
    byte_list central = {.size = 0};
    for (int i = 0; i < count; i++) {
        byte_list content = {.size = 0};
        put_array(&content, members[i].array);
        put(&content, "{  }", 4); /* also an empty metadata object */
        put_member(list, &central, &members[i], &content);
    }
    put_end(list, &central, count);
}

static attn_status read_archive(const byte_list *list, attn_error *error)
{
    unsigned char *exact = malloc(list->size);
    memcpy(exact, list->bytes, list->size);
    return io_try_bytes("bad.npz", exact, list->size, error);
}

static const struct {
    zip_member members[2];
    attn_status status;
    const char *message; /* after "bad.npz: "; NULL: it is read */
} archives[] = {
    {{{.name = "q.npy", .array = F4}}, ATTN_OK, NULL},
    {{{.name = "q.npy", .array = F4, .method = 8}}, ATTN_OK, NULL},
    {{{.name = "q.npy", .array = F4}, {.name = "readme.txt"}}, ATTN_OK, NULL},
    {{{.name = "__metadata__.npy", .array = U1}, {.name = "a/q.npy", .array = F4}}, ATTN_OK, NULL},
    {{{.name = "readme.txt"}}, ATTN_ERR_FORMAT, "no member of the archive is an .npy file"},
    {{{.name = "model/data.pkl"}, {.name = "model/data/0"}},
     ATTN_ERR_FORMAT,
     "a file of torch.save, which is a program to run; safetensors.torch.save_file writes its tensors"},
    {{{.name = ".npy", .array = F4}}, ATTN_ERR_FORMAT, "member '.npy': a tensor has an empty name"},
    {{{.name = "q.npy", .array = F4}, {.name = "q.npy", .array = F4}},
     ATTN_ERR_FORMAT,
     "two members of the archive have the same name"},
    {{{.name = "__metadata__.npy", .array = U1}, {.name = "__metadata__.npy", .array = U1}},
     ATTN_ERR_FORMAT,
     "two members of the archive have the same name"},
    {{{.name = "__metadata__.npy", .array = F4}}, ATTN_ERR_FORMAT, "member '__metadata__.npy': metadata is not a list of u8"},
    {{{.name = "__metadata__.npy", .array = "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }\n"}},
     ATTN_ERR_FORMAT,
     "member '__metadata__.npy': holds 4 bytes of data, shape [5] of u8 needs 5"},
    {{{.name = "q.npy"}}, ATTN_ERR_FORMAT, "member 'q.npy': does not begin like an .npy file"},
    {{{.name = "q.npy", .array = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000)}"}},
     ATTN_ERR_FORMAT,
     "member 'q.npy': holds 4 bytes of data, shape [1000000, 1000000] of f32 needs 4000000000000"},
    {{{.name = "q.npy", .array = "{'descr': '<c8', 'fortran_order': False, 'shape': ()}"}},
     ATTN_ERR_UNSUPPORTED,
     "member 'q.npy': dtype '<c8' is not one of bool, int, uint and float with 8 to 64 bits"},
    {{{.name = "q.npy", .array = F4, .crc_change = 1}}, ATTN_ERR_FORMAT, "member 'q.npy': cannot be unpacked: CRC error"},
    {{{.name = "q.npy", .array = F4, .method = 8, .crc_change = 1}},
     ATTN_ERR_FORMAT,
     "member 'q.npy': cannot be unpacked: CRC error"},
    {{{.name = "q.npy", .array = F4, .method = 12}},
     ATTN_ERR_UNSUPPORTED,
     "member 'q.npy': compression method 12 is neither stored (0) nor deflated (8)"},
    {{{.name = "q.npy", .array = F4, .flags = 1}}, ATTN_ERR_UNSUPPORTED, "member 'q.npy': the member is encrypted"},
    {{{.name = "q.npy", .array = F4, .unpacked_change = 1}},
     ATTN_ERR_FORMAT,
     "member 'q.npy': 70 packed bytes cannot unpack to 71"},
    /* A bomb that announces itself: 2 GiB out of 75 bytes. */
    {{{.name = "q.npy", .array = F4, .method = 8, .unpacked_change = INT32_MAX}},
     ATTN_ERR_FORMAT,
     "member 'q.npy': 75 packed bytes cannot unpack to 2147483717"},
    {{{.name = "q.npy", .array = F4, .method = 8, .unpacked_change = 1}},
     ATTN_ERR_FORMAT,
     "member 'q.npy': unpacks to less than the 71 bytes that the archive declares"},
    {{{.name = "q.npy", .array = F4, .method = 8, .unpacked_change = -1}},
     ATTN_ERR_FORMAT,
     "member 'q.npy': unpacks to more than the 69 bytes that the archive declares"},
    {{{.name = "q.npy", .array = F4, .method = 8, .packed_change = -3}},
     ATTN_ERR_FORMAT,
     "member 'q.npy': cannot be unpacked: CRC error"},
};

static void says_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof archives / sizeof archives[0]; i++) {
        byte_list list = {.size = 0};
        char expected[sizeof(attn_error)] = "";
        if (archives[i].message) snprintf(expected, sizeof expected, "bad.npz: %s", archives[i].message);
        put_archive(&list, archives[i].members, archives[i].members[1].name ? 2 : 1);
        FAILS(read_archive(&list, &error), archives[i].status, expected);
    }
}

/* A member whose data is another member: bytes that count twice make better zip bombs (Fifield 2019, "A better zip bomb"). */
static void overlapping_members_are_rejected(void **state)
{
    (void)state;
    char header[80];
    const unsigned char zeros[1000] = {0};
    const zip_member inner = {.name = "inner.npy"}, outer = {.name = "outer.npy"};
    byte_list content = {.size = 0}, record = {.size = 0}, central = {.size = 0}, ignored = {.size = 0}, list = {.size = 0};
    put_array(&content, "{'descr': '|u1', 'fortran_order': False, 'shape': (1000,)}");
    put(&content, zeros, sizeof zeros);
    put_member(&record, &ignored, &inner, &content);
    snprintf(header, sizeof header, "{'descr': '|u1', 'fortran_order': False, 'shape': (%zu,)}", record.size);
    content.size = 0;
    put_array(&content, header);
    put(&content, record.bytes, record.size);
    put_member(&list, &central, &outer, &content);
    uint32_t place = (uint32_t)(list.size - record.size);
    memcpy(ignored.bytes + ignored.size - strlen(inner.name) - 4, &place, 4);
    put(&central, ignored.bytes, ignored.size);
    put_end(&list, &central, 2);
    FAILS(read_archive(&list, &error), ATTN_ERR_FORMAT,
          "bad.npz: member 'inner.npy': 1068 packed bytes exceed what is left of the file");
}

static void archives_without_an_end_are_rejected(void **state)
{
    (void)state;
    attn_archive *tensors;
    FAILS(attn_archive_read_memory(&tensors, "bad.npz", "PK\x03\x04 and no more", 16, &error), ATTN_ERR_FORMAT,
          "bad.npz: not a valid zip archive: Not a zip archive");
    FAILS(attn_archive_read_memory(&tensors, "bad.npz", "nonsense", 8, &error), ATTN_ERR_FORMAT,
          "bad.npz: not a valid zip archive: Not a zip archive");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(overlapping_members_are_rejected),
        cmocka_unit_test(archives_without_an_end_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
