/* Preloaded into a server, it puts its wall clock ahead by REDLATCH_CLOCK_US. By the system call, because the functions of the
   library are the ones that are replaced here. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead_us(void) {
    static long known;
    static int is_known;
    if (!is_known) {
        const char *said = getenv("REDLATCH_CLOCK_US");
        known = said ? atol(said) : 0;
        is_known = 1;
    }
    return known;
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
