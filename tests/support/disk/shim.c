/* Stands between a process and its files (LD_PRELOAD), below one folder only.
 *
 * Logs every change of a file with its data, in the order in which they were made, so that what a power
 * cut may leave can be built afterwards; and fails or delays calls on request, while the process runs.
 *
 *   SHIM_ROOT     files below this folder are meant
 *   SHIM_LOG      where the changes go; unset: nowhere
 *   SHIM_CONTROL  a file of nine int64 (struct control), shared with whoever steers
 *
 * A record of the log: int64 kind, path length, offset, data length; then path and data.
 * One lock (flock of the log) is held around a change and its record, across processes too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, READ = 4, OPEN = 8 };
enum { LOG_WRITE = 1, LOG_SYNC = 2, LOG_TRUNCATE = 3, LOG_UNLINK = 4, LOG_RENAME = 5 };

struct control {
    int64_t calls;    /* which kinds fail: a sum of WRITE, SYNC, READ, OPEN */
    int64_t error;    /* the errno they fail with */
    int64_t skip;     /* matching calls let through first */
    int64_t times;    /* matching calls failed after that; negative: all */
    int64_t delay_us; /* every SYNC takes this much longer */
    int64_t seen;     /* matching calls so far; counted here */
    int64_t free;     /* bytes that statvfs says are free; negative: the truth */
    int64_t failed;   /* calls that were failed; counted here */
    int64_t ahead_ms; /* the wall clock is so much ahead of what it is */
};

static const char *root;
static size_t root_length;
static int log_fd = -1;
static struct control *control;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_fallocate)(int, off_t, off_t);
static int (*real_open)(const char *, int, ...);
static int (*real_unlink)(const char *);
static int (*real_rename)(const char *, const char *);
static int (*real_clock)(clockid_t, struct timespec *);
static int (*real_statvfs)(const char *, struct statvfs *);

__attribute__((constructor)) static void begin(void)
{
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_write = dlsym(RTLD_NEXT, "write");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_pread = dlsym(RTLD_NEXT, "pread");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate");
    real_fallocate = dlsym(RTLD_NEXT, "posix_fallocate");
    real_open = dlsym(RTLD_NEXT, "open");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    real_statvfs = dlsym(RTLD_NEXT, "statvfs");
    const char *log = getenv("SHIM_LOG");
    const char *steering = getenv("SHIM_CONTROL");
    root = getenv("SHIM_ROOT");
    root_length = root ? strlen(root) : 0;
    if (!root)
        return;
    if (log)
        log_fd = real_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (steering) {
        int fd = real_open(steering, O_RDWR | O_CLOEXEC);
        void *at = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        control = at == MAP_FAILED ? NULL : at;
        close(fd);
    }
}

static int below_root(const char *path)
{
    return root && strncmp(path, root, root_length) == 0 && path[root_length] == '/';
}

/* The path of a descriptor below the root, without it; 0 if it is somewhere else. */
static int named(int fd, char *path)
{
    char link[64], found[PATH_MAX];
    if (!root || fd == log_fd)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, found, sizeof found - 1);
    if (length <= 0)
        return 0;
    found[length] = 0;
    if (!below_root(found))
        return 0;
    strcpy(path, found + root_length + 1);
    return 1;
}

/* Whether this call is to fail; sets errno then. */
static int fails(int kind)
{
    if (!control)
        return 0;
    if (control->delay_us > 0 && kind & SYNC) {
        struct timespec pause = {control->delay_us / 1000000, control->delay_us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
    if (!(control->calls & kind))
        return 0;
    int64_t at = __atomic_fetch_add(&control->seen, 1, __ATOMIC_SEQ_CST);
    if (at < control->skip || (control->times >= 0 && at >= control->skip + control->times))
        return 0;
    __atomic_fetch_add(&control->failed, 1, __ATOMIC_SEQ_CST);
    errno = (int)control->error;
    return 1;
}

static void lock(void)
{
    pthread_mutex_lock(&mutex);
    if (log_fd >= 0)
        flock(log_fd, LOCK_EX);
}

static void unlock(void)
{
    int kept = errno;
    if (log_fd >= 0)
        flock(log_fd, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    errno = kept;
}

static void note(int64_t kind, const char *path, int64_t offset, const struct iovec *data, int count,
                 int64_t length)
{
    if (log_fd < 0)
        return;
    int64_t head[4] = {kind, (int64_t)strlen(path), offset, length};
    real_write(log_fd, head, sizeof head);
    real_write(log_fd, path, strlen(path));
    for (int i = 0; i < count && length > 0; i++) {
        int64_t part = (int64_t)data[i].iov_len < length ? (int64_t)data[i].iov_len : length;
        real_write(log_fd, data[i].iov_base, (size_t)part);
        length -= part;
    }
}

static void note_write(int fd, const char *path, int64_t offset, const struct iovec *data, int count,
                       ssize_t done)
{
    if (done <= 0)
        return;
    note(LOG_WRITE, path, offset, data, count, done);
    if (fcntl(fd, F_GETFL) & (O_DSYNC | O_SYNC))
        note(LOG_SYNC, path, offset, NULL, 0, 0);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    char path[PATH_MAX];
    if (!named(fd, path))
        return real_pwrite(fd, data, size, offset);
    if (fails(WRITE))
        return -1;
    struct iovec whole = {(void *)data, size};
    lock();
    ssize_t done = real_pwrite(fd, data, size, offset);
    note_write(fd, path, offset, &whole, 1, done);
    unlock();
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite(fd, data, size, offset);
}

ssize_t write(int fd, const void *data, size_t size)
{
    char path[PATH_MAX];
    if (!named(fd, path))
        return real_write(fd, data, size);
    if (fails(WRITE))
        return -1;
    struct iovec whole = {(void *)data, size};
    lock();
    int64_t offset = lseek(fd, 0, SEEK_CUR);
    ssize_t done = real_write(fd, data, size);
    note_write(fd, path, offset, &whole, 1, done);
    unlock();
    return done;
}

ssize_t writev(int fd, const struct iovec *data, int count)
{
    char path[PATH_MAX];
    if (!named(fd, path))
        return real_writev(fd, data, count);
    if (fails(WRITE))
        return -1;
    lock();
    int64_t offset = lseek(fd, 0, SEEK_CUR);
    ssize_t done = real_writev(fd, data, count);
    note_write(fd, path, offset, data, count, done);
    unlock();
    return done;
}

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    char path[PATH_MAX];
    if (control && control->calls & READ && named(fd, path) && fails(READ))
        return -1;
    return real_pread(fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off_t offset)
{
    return pread(fd, data, size, offset);
}

static int synced(int fd, int (*real)(int))
{
    char path[PATH_MAX];
    if (!named(fd, path))
        return real(fd);
    if (fails(SYNC))
        return -1;
    lock();
    int done = real(fd);
    if (done == 0)
        note(LOG_SYNC, path, 0, NULL, 0, 0);
    unlock();
    return done;
}

int fsync(int fd)
{
    return synced(fd, real_fsync);
}

int fdatasync(int fd)
{
    return synced(fd, real_fdatasync);
}

int ftruncate(int fd, off_t size)
{
    char path[PATH_MAX];
    if (!named(fd, path))
        return real_ftruncate(fd, size);
    if (fails(WRITE))
        return -1;
    lock();
    int done = real_ftruncate(fd, size);
    if (done == 0)
        note(LOG_TRUNCATE, path, size, NULL, 0, 0);
    unlock();
    return done;
}

int ftruncate64(int fd, off_t size)
{
    return ftruncate(fd, size);
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    char path[PATH_MAX];
    if (named(fd, path) && fails(WRITE))
        return errno;
    return real_fallocate(fd, offset, size);
}

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    if (control && control->calls & OPEN && below_root(path) && fails(OPEN))
        return -1;
    return real_open(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    return open(path, flags | O_LARGEFILE, mode);
}

int unlink(const char *path)
{
    if (!below_root(path))
        return real_unlink(path);
    lock();
    int done = real_unlink(path);
    if (done == 0)
        note(LOG_UNLINK, path + root_length + 1, 0, NULL, 0, 0);
    unlock();
    return done;
}

int rename(const char *from, const char *to)
{
    if (!below_root(from) || !below_root(to))
        return real_rename(from, to);
    const char *name = to + root_length + 1;
    struct iovec whole = {(void *)name, strlen(name)};
    lock();
    int done = real_rename(from, to);
    if (done == 0)
        note(LOG_RENAME, from + root_length + 1, 0, &whole, 1, (int64_t)whole.iov_len);
    unlock();
    return done;
}

int statvfs(const char *path, struct statvfs *found)
{
    int done = real_statvfs(path, found);
    if (done == 0 && control && control->free >= 0)
        found->f_bavail = found->f_bfree = (fsblkcnt_t)control->free / found->f_frsize;
    return done;
}

int statvfs64(const char *path, struct statvfs64 *found)
{
    return statvfs(path, (struct statvfs *)found);
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    int done = real_clock(which, now);
    if (done == 0 && which == CLOCK_REALTIME && control)
        now->tv_sec += control->ahead_ms / 1000;
    return done;
}
