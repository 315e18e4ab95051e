/* Preloaded into a server, it puts the server's wall clock ahead by the microseconds that the file REDLATCH_CLOCK has: a long, read
   anew each time. By the system call, because the functions of the library are the ones that are replaced here. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead_us(void) {
    static const volatile long *ahead;
    if (!ahead) {
        const char *name = getenv("REDLATCH_CLOCK");
        int file = name ? open(name, O_RDONLY) : -1;
        void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
        static const long nothing;
        ahead = map == MAP_FAILED ? &nothing : map;
        if (file >= 0) close(file);
    }
    return *ahead;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    if (clock == CLOCK_REALTIME) {
        long us = now->tv_nsec / 1000 + ahead_us(), over = us >= 0 ? us / 1000000 : -((999999 - us) / 1000000);
        now->tv_sec += over;
        now->tv_nsec = (us - over * 1000000) * 1000 + now->tv_nsec % 1000;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    tv->tv_sec = now.tv_sec;
    tv->tv_usec = now.tv_nsec / 1000;
    return 0;
}
