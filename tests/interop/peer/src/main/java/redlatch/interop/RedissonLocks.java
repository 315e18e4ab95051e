package redlatch.interop;

import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.NameMapper;
import org.redisson.config.ShardedSubscriptionMode;

/** Redisson's RLock, RFencedLock, fair lock or a side of RReadWriteLock, with default settings but for the watchdog's time-out, the prefix, and how it sees a cluster. */
final class RedissonLocks implements Locks {
    /** How often it looks who has which slots. */
    private static final int SCAN_MILLIS = 500;

    /** A failover is over long before so many calls have failed; a client that is shut down fails each. */
    private static final int TRIES = 100;

    /** Which of Redisson's locks a name means. */
    private enum Kind {
        PLAIN, FENCED, FAIR, READ, WRITE
    }

    private final RedissonClient client;
    private final Kind kind;
    private final Counters counters;

    private RedissonLocks(RedissonClient client, Kind kind) {
        this.client = client;
        this.kind = kind;
        this.counters = new Counters(client);
    }

    private static RedissonLocks of(Config config, long watchdogMillis, String prefix) {
        config.setLockWatchdogTimeout(watchdogMillis);
        if (!prefix.isEmpty()) {
            config.setNameMapper(new Prefix(prefix));
        }
        return new RedissonLocks(Redisson.create(config), Kind.PLAIN);
    }

    static RedissonLocks ofServer(String address, long watchdogMillis, String prefix) {
        return of(server(address), watchdogMillis, prefix);
    }

    private static Config server(String address) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + address);
        return config;
    }

    static RedissonLocks ofCluster(ShardedSubscriptionMode mode, String addresses, long watchdogMillis, String prefix) {
        Config config = new Config();
        ClusterServersConfig cluster = config.useClusterServers();
        cluster.setScanInterval(SCAN_MILLIS).setShardedSubscriptionMode(mode);
        for (String address : addresses.split(",")) {
            cluster.addNodeAddress("redis://" + address);
        }
        return of(config, watchdogMillis, prefix);
    }

    private RLock lockOf(String name) {
        return switch (kind) {
            case PLAIN -> client.getLock(name);
            case FENCED -> client.getFencedLock(name);
            case FAIR -> client.getFairLock(name);
            case READ -> client.getReadWriteLock(name).readLock();
            case WRITE -> client.getReadWriteLock(name).writeLock();
        };
    }

    @Override
    public Locks ofKind(String kind) {
        return new RedissonLocks(client, Kind.valueOf(kind.toUpperCase(Locale.ROOT)));
    }

    @Override
    public Counters counters() {
        return counters;
    }

    /**
     * Redisson has replicas confirm each grant. When the master gives way meanwhile, or Redisson closes its connections to it, that
     * is an error, and the lock may have been taken for all that: it is given back, and asked for again. No case asks for an inner level then.
     */
    @Override
    public void lock(String name) {
        RLock lock = lockOf(name);
        for (int left = TRIES;; left--) {
            try {
                lock.lock();
                return;
            } catch (RedisException error) {
                rethrowUnlessDemoted(error);
                if (left == 0) {
                    throw error;
                }
                if (lock.isHeldByCurrentThread()) {
                    unlock(name);
                }
            }
        }
    }

    @Override
    public void lock(String name, long leaseMillis) {
        lockOf(name).lock(leaseMillis, TimeUnit.MILLISECONDS);
    }

    private static void rethrowUnlessDemoted(RedisException error) {
        String message = String.valueOf(error.getMessage());
        if (!message.contains("UNBLOCKED") && !message.contains("RedisClient is shutdown")) {
            throw error;
        }
    }

    @Override
    public boolean tryLock(String name, long waitMillis) throws InterruptedException {
        return lockOf(name).tryLock(waitMillis, TimeUnit.MILLISECONDS);
    }

    @Override
    public void unlock(String name) {
        RLock lock = lockOf(name);
        try {
            lock.unlock();
        } catch (RedisException error) {
            rethrowUnlessDemoted(error);
            if (lock.isHeldByCurrentThread()) {
                lock.unlock();
            }
        }
    }

    @Override
    public boolean forceUnlock(String name) {
        return lockOf(name).forceUnlock();
    }

    @Override
    public boolean isLocked(String name) {
        return lockOf(name).isLocked();
    }

    @Override
    public boolean haveTokens() {
        return kind == Kind.FENCED;
    }

    @Override
    public long lockAndGetToken(String name) {
        return client.getFencedLock(name).lockAndGetToken();
    }

    @Override
    public void close() {
        client.shutdown();
    }

    private record Prefix(String prefix) implements NameMapper {
        @Override
        public String map(String name) {
            return prefix + name;
        }

        @Override
        public String unmap(String name) {
            return name.substring(prefix.length());
        }
    }
}
