package redlatch.interop;

/** What a test asks of a family of locks. The lease is the watchdog's; a lock is the calling thread's. */
interface Locks extends AutoCloseable {
    void lock(String name) throws InterruptedException;

    boolean tryLock(String name, long waitMillis) throws InterruptedException;

    /** Throws IllegalMonitorStateException when the calling thread does not hold the lock. */
    void unlock(String name);

    boolean forceUnlock(String name);

    boolean isLocked(String name);

    /** Of a kind that has tokens. */
    default long lockAndGetToken(String name) {
        throw new UnsupportedOperationException("no tokens");
    }

    @Override
    void close();
}
