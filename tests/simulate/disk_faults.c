/* Faults of a disk, for a process that is started with this library in LD_PRELOAD.

   It looks at files below the folder DISK_FAULTS alone. The file DISK_FAULTS.mode says what happens now: "full",
   "readonly", "slow MILLISECONDS", or nothing. What fsync and fdatasync wait for is copied to the folder
   DISK_FAULTS.synced: that is what a power cut would leave. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int below(int fd, char *path) {
    char link[64];
    const char *folder = getenv("DISK_FAULTS");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (folder == NULL || size < 0) return 0;
    path[size] = 0;
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

static void mode(char *text, size_t size) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.mode", getenv("DISK_FAULTS"));
    FILE *file = fopen(path, "r");
    text[0] = 0;
    if (file == NULL) return;
    if (fgets(text, (int)size, file) == NULL) text[0] = 0;
    fclose(file);
}

static int refused(int fd) {
    char path[PATH_MAX], text[64];
    if (!below(fd, path)) return 0;
    mode(text, sizeof text);
    if (strncmp(text, "full", 4) == 0) return ENOSPC;
    if (strncmp(text, "readonly", 8) == 0) return EROFS;
    return 0;
}

static void synced(int fd) {
    char path[PATH_MAX], text[64], copy[PATH_MAX * 2], data[65536];
    if (!below(fd, path)) return;
    mode(text, sizeof text);
    if (strncmp(text, "slow", 4) == 0) usleep((useconds_t)atoi(text + 4) * 1000);
    snprintf(copy, sizeof copy, "%s.synced/%s", getenv("DISK_FAULTS"), strrchr(path, '/') + 1);
    int to = open(copy, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t at = 0;
    ssize_t count;
    while (to >= 0 && (count = pread(fd, data, sizeof data, at)) > 0) {
        if (write(to, data, (size_t)count) != count) break;
        at += count;
    }
    if (to >= 0) close(to);
}

#define REAL(type, name, ...) type (*real)(__VA_ARGS__) = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    int error = refused(fd);
    if (error) { errno = error; return -1; }
    return real(fd, data, size, at);
}

int ftruncate64(int fd, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    int error = refused(fd);
    if (error) { errno = error; return -1; }
    return real(fd, size);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    int result = real(fd);
    if (result == 0) synced(fd);
    return result;
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    int result = real(fd);
    if (result == 0) synced(fd);
    return result;
}
