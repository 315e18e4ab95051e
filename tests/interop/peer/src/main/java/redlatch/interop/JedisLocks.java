package redlatch.interop;

import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;

/**
 * The small lock on Jedis, after docs/protocol.md: a pool, a map of thread entries, a watchdog, and a subscriber that
 * releases a waiter from a semaphore without permits. Its channel is {@code __red__lock:} and the name.
 */
final class JedisLocks implements Locks {
    private static final String CHANNEL = "__red__lock:";
    static final String UNLOCKED = "0";

    /** KEYS: lock. ARGV: lease in ms, owner. Reply: nil when acquired, else the holder's PTTL. */
    private static final String ACQUIRE = """
            if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
              redis.call('hincrby', KEYS[1], ARGV[2], 1)
              redis.call('pexpire', KEYS[1], ARGV[1])
              return nil
            end
            return redis.call('pttl', KEYS[1])
            """;

    /** KEYS: lock. ARGV: lease in ms, owner, channel, message. Reply: nil when not held, else levels left. */
    private static final String RELEASE = """
            if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
              return nil
            end
            local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
            if left > 0 then
              redis.call('pexpire', KEYS[1], ARGV[1])
            else
              redis.call('del', KEYS[1])
              redis.call('publish', ARGV[3], ARGV[4])
            end
            return left
            """;

    /** KEYS: lock. ARGV: lease in ms, owner. */
    private static final String RENEW = """
            if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
              return redis.call('pexpire', KEYS[1], ARGV[1])
            end
            return 0
            """;

    /** KEYS: lock. ARGV: channel, message. Reply: 1 when it was locked. */
    private static final String FORCE = """
            if redis.call('del', KEYS[1]) == 1 then
              redis.call('publish', ARGV[1], ARGV[2])
              return 1
            end
            return 0
            """;

    private final String id = UUID.randomUUID().toString();
    private final Map<String, ThreadEntry> entries = new ConcurrentHashMap<>();
    private final ScheduledExecutorService watchdog = Executors.newScheduledThreadPool(2);
    private final RedisClient pool;
    private final Subscriber subscriber;
    private final long lease;
    private final String prefix;

    JedisLocks(String address, long watchdogMillis, String prefix) {
        ConnectionPoolConfig config = new ConnectionPoolConfig();
        config.setMaxTotal(64);
        pool = RedisClient.builder().hostAndPort(HostAndPort.from(address)).poolConfig(config).build();
        subscriber = new Subscriber(pool, CHANNEL + id);
        lease = watchdogMillis;
        this.prefix = prefix;
    }

    /** What one thread holds of one lock. */
    private static final class ThreadEntry {
        private int depth;
        private ScheduledFuture<?> renewal;
    }

    @Override
    public void lock(String name) throws InterruptedException {
        acquire(prefix + name, Long.MAX_VALUE);
    }

    @Override
    public boolean tryLock(String name, long waitMillis) throws InterruptedException {
        return acquire(prefix + name, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMillis));
    }

    @Override
    public void unlock(String name) {
        String key = prefix + name;
        Object left = call(RELEASE, key, String.valueOf(lease), owner(), CHANNEL + key, UNLOCKED);
        leave(key);
        if (left == null) {
            throw new IllegalMonitorStateException(name + " is not held by " + owner());
        }
    }

    @Override
    public boolean forceUnlock(String name) {
        String key = prefix + name;
        return call(FORCE, key, CHANNEL + key, UNLOCKED).equals(1L);
    }

    @Override
    public boolean isLocked(String name) {
        return pool.exists(prefix + name);
    }

    @Override
    public void close() {
        watchdog.shutdownNow();
        subscriber.close();
        pool.close();
    }

    private boolean acquire(String key, long deadline) throws InterruptedException {
        if (take(key) == null) {
            return true;
        }
        if (deadline - System.nanoTime() <= 0) {
            return false;
        }
        Subscriber.Channel channel = subscriber.join(CHANNEL + key);
        try {
            return sleepAndTake(key, channel.messages, deadline);
        } finally {
            subscriber.leave(CHANNEL + key);
        }
    }

    private boolean sleepAndTake(String key, Semaphore messages, long deadline) throws InterruptedException {
        for (;;) {
            Long holdersMillis = take(key);
            if (holdersMillis == null) {
                return true;
            }
            long left = deadline - System.nanoTime();
            if (left <= 0) {
                return false;
            }
            messages.tryAcquire(Math.min(left, TimeUnit.MILLISECONDS.toNanos(holdersMillis)), TimeUnit.NANOSECONDS);
        }
    }

    /** Null when it was taken, else how long its holder still has. */
    private Long take(String key) {
        Long holdersMillis = (Long) call(ACQUIRE, key, String.valueOf(lease), owner());
        if (holdersMillis == null) {
            enter(key);
        }
        return holdersMillis;
    }

    private void enter(String key) {
        ThreadEntry entry = entries.computeIfAbsent(owner() + key, absent -> new ThreadEntry());
        if (entry.depth++ == 0) {
            String owner = owner();
            Runnable renew = () -> call(RENEW, key, String.valueOf(lease), owner);
            entry.renewal = watchdog.scheduleWithFixedDelay(renew, lease / 3, lease / 3, TimeUnit.MILLISECONDS);
        }
    }

    private void leave(String key) {
        ThreadEntry entry = entries.get(owner() + key);
        if (entry != null && --entry.depth == 0) {
            entry.renewal.cancel(false);
            entries.remove(owner() + key);
        }
    }

    private String owner() {
        return id + ":" + Thread.currentThread().getId();
    }

    private Object call(String script, String key, String... arguments) {
        return pool.eval(script, List.of(key), List.of(arguments));
    }
}
