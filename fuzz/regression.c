/* SPDX-License-Identifier: MIT
 *
 * regression.c - runs a fuzz target over the files and folders of the command line, with any compiler, so that a fuzzer's findings
 * are retested.
 */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static long inputs;

static int run_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(size ? size : 1); /* of exactly this size, so that a sanitizer catches accesses outside */
    int complete = file && bytes && fread(bytes, 1, size, file) == size;
    if (complete) LLVMFuzzerTestOneInput(bytes, size), inputs++;
    if (!complete) fprintf(stderr, "%s: cannot read\n", path);
    free(bytes);
    if (file) fclose(file);
    return complete;
}

static int run_path(const char *path)
{
    struct stat description;
    if (stat(path, &description)) {
        perror(path);
        return 0;
    }
    if (!S_ISDIR(description.st_mode)) return run_file(path, (size_t)description.st_size);
    DIR *folder = opendir(path);
    int complete = folder != NULL;
    for (struct dirent *entry; complete && (entry = readdir(folder));) {
        char inner[4096];
        if (entry->d_name[0] == '.') continue;
        complete = snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) < (int)sizeof inner && run_path(inner);
    }
    if (folder) closedir(folder);
    return complete;
}

int main(int argc, char **argv)
{
    int complete = argc > 1;
    for (int i = 1; i < argc; i++) complete &= run_path(argv[i]);
    printf("%ld inputs\n", inputs);
    return complete && inputs > 0 ? 0 : 1;
}
