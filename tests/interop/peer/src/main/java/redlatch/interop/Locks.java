package redlatch.interop;

/** What a test asks of a family of locks. The lease is the watchdog's; a lock is the calling thread's. */
interface Locks extends AutoCloseable {
    void lock(String name) throws InterruptedException;

    /** With a lease that nobody renews. */
    default void lock(String name, long leaseMillis) throws InterruptedException {
        throw new UnsupportedOperationException("no leases");
    }

    boolean tryLock(String name, long waitMillis) throws InterruptedException;

    /** Throws IllegalMonitorStateException when the calling thread does not hold the lock. */
    void unlock(String name);

    boolean forceUnlock(String name);

    boolean isLocked(String name);

    /** Locks of another kind, "fenced" or "fair", or a side of read-write locks, "read" or "write", of the same client. */
    default Locks ofKind(String kind) {
        throw new UnsupportedOperationException(kind);
    }

    /** Semaphores and latches of the same client. */
    default Counters counters() {
        throw new UnsupportedOperationException("no counters");
    }

    /** Whether they are fenced. */
    default boolean haveTokens() {
        return false;
    }

    /** As a fenced lock, also where the family's are not. */
    default long lockAndGetToken(String name) {
        throw new UnsupportedOperationException("no tokens");
    }

    @Override
    void close();
}
