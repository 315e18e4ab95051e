package redlatch.interop;

/** What a test asks of a family of locks. The lease is the watchdog's; a lock is the calling thread's. */
interface Locks extends AutoCloseable {
    void lock(String name) throws InterruptedException;

    boolean tryLock(String name, long waitMillis) throws InterruptedException;

    /** Throws IllegalMonitorStateException when the calling thread does not hold the lock. */
    void unlock(String name);

    boolean forceUnlock(String name);

    boolean isLocked(String name);

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
